"""PyTorch's side of `millrace bench framerate`: trains the same network on one frame a step.

Reads lines "preset layers features kernel size mode threads seconds", mode being eager, channels_last
or compile, and answers each with the median milliseconds a step, or with why there are none. A mode
that begins three times slower than another did is left at that: it is not the best.
"""
import sys
import time

import torch


class Block(torch.nn.Module):

    def __init__(self, channels, width, stride):
        super().__init__()
        conv, norm = torch.nn.Conv2d, torch.nn.GroupNorm
        self.branch = torch.nn.Sequential(conv(channels, width, 3, stride, padding=1), norm(32, width), torch.nn.ReLU(),
                                          conv(width, width, 3, padding=1), norm(32, width))
        self.shortcut = torch.nn.Identity() if stride == 1 and channels == width else torch.nn.Sequential(
            conv(channels, width, 1, stride), norm(32, width))

    def forward(self, x):
        return torch.relu(self.branch(x) + self.shortcut(x))


def resnet18():
    modules = [torch.nn.Conv2d(3, 64, 7, 2, padding=3), torch.nn.GroupNorm(32, 64), torch.nn.ReLU(),
               torch.nn.MaxPool2d(2)]
    channels = 64
    for width in (64, 128, 256, 512):
        modules += [Block(channels, width, 2 if width > 64 else 1), Block(width, width, 1)]
        channels = width
    modules += [torch.nn.Conv2d(512, 3 * 32 * 32, 1), torch.nn.PixelShuffle(32), torch.nn.Sigmoid()]
    return torch.nn.Sequential(*modules)


def network(preset, layers=10, features=16, kernel=5):
    if preset == "resnet18":
        return resnet18()
    modules, channels = [], 3
    for layer in range(layers):
        last = layer + 1 == layers
        modules.append(torch.nn.Conv2d(channels, 3 if last else features, kernel, padding=kernel // 2))
        modules.append(torch.nn.Sigmoid() if last else torch.nn.ReLU())
        channels = features
    return torch.nn.Sequential(*modules)


class Step:
    def __init__(self, preset, layers, features, kernel, size, mode):
        form = torch.channels_last if mode == "channels_last" else torch.contiguous_format
        self.frame = torch.rand(1, 3, size, size).to(memory_format=form)
        self.model = network(preset, layers, features, kernel).to(memory_format=form)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.forward = torch.compile(self.loss) if mode == "compile" else self.loss

    def loss(self, frame):
        return torch.nn.functional.mse_loss(self.model(frame), frame)

    def __call__(self):
        self.optimizer.zero_grad()
        self.forward(self.frame).backward()
        self.optimizer.step()


def median_ms(step, seconds):
    times, end = [], time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - begin))
    return sorted(times)[len(times) // 2]


def first_ms(step):
    for _ in range(2):
        step()
    begin = time.perf_counter()
    step()
    return 1e3 * (time.perf_counter() - begin)


def main():
    steps, first = {}, {}
    for line in sys.stdin:
        preset, *shape, size, mode, threads, seconds = line.split()
        torch.set_num_threads(int(threads))
        case, arm = (preset, *shape, size), (mode, threads)
        try:
            if (case, arm) not in steps:
                steps[case, arm] = Step(preset, *map(int, shape), int(size), mode)
                first.setdefault(case, {})[arm] = first_ms(steps[case, arm])
            slow = first[case][arm] > 3 * min(first[case].values())
            print(first[case][arm] if slow else median_ms(steps[case, arm], float(seconds)), flush=True)
        except Exception as error:
            print(type(error).__name__, str(error).splitlines()[:1], flush=True)


if __name__ == "__main__":
    main()
