"""PyTorch's side of `millrace bench framerate`: trains the same network on one frame a step.

Reads lines "layers features kernel size mode threads seconds", mode being eager, channels_last or
compile, and answers each with the median milliseconds a step, or with why there are none.
"""
import sys
import time

import torch


def network(layers, features, kernel):
    modules, channels = [], 3
    for layer in range(layers):
        last = layer + 1 == layers
        modules.append(torch.nn.Conv2d(channels, 3 if last else features, kernel, padding=kernel // 2))
        modules.append(torch.nn.Sigmoid() if last else torch.nn.ReLU())
        channels = features
    return torch.nn.Sequential(*modules)


class Step:
    def __init__(self, layers, features, kernel, size, mode):
        form = torch.channels_last if mode == "channels_last" else torch.contiguous_format
        self.frame = torch.rand(1, 3, size, size).to(memory_format=form)
        self.model = network(layers, features, kernel).to(memory_format=form)
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


def main():
    steps = {}
    for line in sys.stdin:
        *shape, size, mode, threads, seconds = line.split()
        torch.set_num_threads(int(threads))
        key = (*shape, size, mode, threads)
        try:
            if key not in steps:
                steps[key] = Step(*map(int, shape), int(size), mode)
                for _ in range(3):
                    steps[key]()
            print(median_ms(steps[key], float(seconds)), flush=True)
        except Exception as error:
            print(type(error).__name__, str(error).splitlines()[:1], flush=True)


main()
