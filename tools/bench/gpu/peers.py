"""PyTorch's side of `tools/gpu-check bench`: `peers.py DEVICE`.

Answers each line of JSON with another. {"network", "width", "height", "arm", "seconds"}: {"ms": of one training step on one
frame, captured whole in a CUDA graph and replayed back to back}. {"arm": "device"}: what the device could do at most.
What fails is {"error": words}.
"""
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))
from pytorch_step import network  # noqa: E402

DEVICE = sys.argv[1]
CUDA = DEVICE == "cuda"


def make_step(question, precision, way="benchmark"):
    """A way is "deterministic", "benchmark" (of cuDNN), "channels_last" or "compile"; all but the first may choose kernels."""
    torch.backends.cudnn.deterministic = way == "deterministic"
    torch.backends.cudnn.benchmark = way != "deterministic"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    form = torch.channels_last if way == "channels_last" else torch.contiguous_format
    torch.manual_seed(0)
    model = network(**{"preset": "partime-cnn", **question["network"]}).to(DEVICE, memory_format=form)
    frame = torch.rand(1, 3, question["height"], question["width"], device=DEVICE).to(memory_format=form)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=CUDA or None)

    def loss():
        with torch.autocast(DEVICE, torch.bfloat16, enabled=precision == "bf16"):
            return torch.nn.functional.mse_loss(model(frame), frame)

    forward = torch.compile(loss) if way == "compile" else loss

    def step():
        optimizer.zero_grad(set_to_none=True)
        forward().backward()
        optimizer.step()
    return step


def captured(step):
    """`step` as one graph: what launches it."""
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


def synchronize():
    if CUDA:
        torch.cuda.synchronize()


def back_to_back_ms(launch, seconds):
    def batch(launches):
        synchronize()
        begin = time.perf_counter()
        for _ in range(launches):
            launch()
        synchronize()
        return 1e3 * (time.perf_counter() - begin) / launches

    batch(1)
    launches = max(4, min(64, int(20 / batch(1))))
    warm = time.perf_counter() + 0.05
    while time.perf_counter() < warm:
        batch(launches)
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        times.append(batch(launches))
    return statistics.median(times)


def device(seconds):
    """Multi-processors, their highest clock, and the bytes a second that a large copy reads and writes."""
    source = torch.empty(1 << 28, dtype=torch.uint8, device=DEVICE)
    target = torch.empty_like(source)
    found = {"bytes_a_second": 2e3 * source.numel() / back_to_back_ms(lambda: target.copy_(source), seconds),
             "torch": torch.__version__}
    if CUDA:
        properties = torch.cuda.get_device_properties(0)
        clock = subprocess.run(["nvidia-smi", "--query-gpu=clocks.max.sm", "--format=csv,noheader,nounits"],
                               capture_output=True, text=True, check=True).stdout.split()
        found |= {"name": properties.name, "processors": properties.multi_processor_count, "generation": properties.major,
                  "clock_hz": 1e6 * float(clock[0]), "cudnn": torch.backends.cudnn.version()}
    return found


def answer(question):
    if question["arm"] == "device":
        return device(question["seconds"])
    step = make_step(question, *question["arm"].split(", "))
    return {"ms": back_to_back_ms(captured(step) if CUDA else step, question["seconds"])}


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    for line in sys.stdin:
        try:
            found = answer(json.loads(line))
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main()
