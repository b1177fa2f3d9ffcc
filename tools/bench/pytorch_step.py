"""PyTorch's side of `millrace bench framerate` and `tools/gpu-check bench`: trains the network, a frame per step.

Answers each line of JSON with another. {"network", "width", "height", "way", "seconds"}: {"ms": of one training step}.
A way is "eager", "channels_last" or "compile", with "threads" on CPUs; a way that starts three times slower than
another is not measured further. With {"device": "cuda"} the step is captured in a CUDA graph and replayed back to
back, with a "precision", and instead of eager "deterministic" or "benchmark" (of cuDNN; the other ways may choose
kernels, too). No "way": the device's limits. Failures are {"error": words}.
"""
import json
import statistics
import subprocess
import time

import torch

from measuring import serve


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


def network(preset="partime-cnn", layers=10, features=16, kernel=5):
    if preset == "resnet18":
        return resnet18()
    modules, channels = [], 3
    for layer in range(layers):
        last = layer + 1 == layers
        modules.append(torch.nn.Conv2d(channels, 3 if last else features, kernel, padding=kernel // 2))
        modules.append(torch.nn.Sigmoid() if last else torch.nn.ReLU())
        channels = features
    return torch.nn.Sequential(*modules)


def make_step(question, device):
    way, precision = question["way"], question.get("precision", "float32")
    torch.backends.cudnn.deterministic = way == "deterministic"
    torch.backends.cudnn.benchmark = way != "deterministic"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    form = torch.channels_last if way == "channels_last" else torch.contiguous_format
    torch.manual_seed(0)
    model = network(**question["network"]).to(device, memory_format=form)
    frame = torch.rand(1, 3, question["height"], question["width"], device=device).to(memory_format=form)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True if device == "cuda" else None)

    def loss():
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
            return torch.nn.functional.mse_loss(model(frame), frame)

    forward = torch.compile(loss) if way == "compile" else loss

    def step():
        optimizer.zero_grad()
        forward().backward()
        optimizer.step()
    return step


def captured(step):
    """Captures `step` as one graph. Returns the function that launches it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(4):
            step()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()
    return graph.replay


def mean_ms(launch, launches=1, wait=lambda: None):
    """Mean over `launches` back-to-back launches."""
    wait()
    begin = time.perf_counter()
    for _ in range(launches):
        launch()
    wait()
    return 1e3 * (time.perf_counter() - begin) / launches


def median_ms(seconds, *launching):
    times, end = [], time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        times.append(mean_ms(*launching))
    return statistics.median(times)


def back_to_back_ms(launch, seconds):
    """On a GPU: warms it up, as it starts at a low clock, and never fills its queue."""
    wait = torch.cuda.synchronize
    mean_ms(launch, 1, wait)
    launches = max(4, min(64, int(20 / mean_ms(launch, 1, wait))))
    warm = time.perf_counter() + 0.05
    while time.perf_counter() < warm:
        mean_ms(launch, launches, wait)
    return median_ms(seconds, launch, launches, wait)


STEPS = {}  # on CPUs, by network and size, then by way: the step and its first time in milliseconds


def on_cores_ms(question):
    threads = question.get("threads", 1)
    torch.set_num_threads(threads)
    ways = STEPS.setdefault(json.dumps([question[key] for key in ("network", "width", "height")]), {})
    way = question["way"], threads
    if way not in ways:
        step = make_step(question, "cpu")
        for _ in range(2):
            step()
        ways[way] = step, mean_ms(step)
    step, first = ways[way]
    slow = first > 3 * min(ms for _, ms in ways.values())
    return first if slow else median_ms(question["seconds"], step)


def limits(seconds):
    """A GPU's processors, their highest clock, and the bytes per second that a large copy reads and writes."""
    source = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    properties = torch.cuda.get_device_properties(0)
    clock = subprocess.run(["nvidia-smi", "--query-gpu=clocks.max.sm", "--format=csv,noheader,nounits"],
                           capture_output=True, text=True, check=True).stdout.split()
    return {"bytes_a_second": 2e3 * source.numel() / back_to_back_ms(lambda: target.copy_(source), seconds),
            "torch": torch.__version__, "name": properties.name, "processors": properties.multi_processor_count,
            "generation": properties.major, "clock_hz": 1e6 * float(clock[0]), "cudnn": torch.backends.cudnn.version()}


def answer(question):
    try:
        if "way" not in question:
            return limits(question["seconds"])
        if question.get("device") == "cuda":
            return {"ms": back_to_back_ms(captured(make_step(question, "cuda")), question["seconds"])}
        return {"ms": on_cores_ms(question)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0]}


if __name__ == "__main__":
    serve(answer)
