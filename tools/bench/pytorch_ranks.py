"""PyTorch's side of `millrace bench ranks`: torch.distributed.pipelining over gloo, two processes on one machine.

Takes "size microbatches seconds schedule" (gpipe, 1f1b) and prints the median milliseconds per sample. The network is
Millrace's `basic`: ten convolutions of 16 features, kernel 5, cut in half.
"""
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from pytorch_step import network

RANKS = 2


def work(rank, port, size, microbatches, seconds, name):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
    frames = torch.rand(microbatches, 3, size, size)
    modules = network("partime-cnn")
    module = modules[:len(modules) // 2] if rank == 0 else modules[len(modules) // 2:]
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    stage = PipelineStage(module, rank, RANKS, torch.device("cpu"))
    kind = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}[name]
    schedule = kind(stage, microbatches, loss_fn=torch.nn.functional.mse_loss)
    times, going = [], torch.ones(1)
    end = time.perf_counter() + seconds
    while going.item():
        began = time.perf_counter()
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(frames)
        else:
            schedule.step(target=frames)
        optimizer.step()
        times.append(1e3 * (time.perf_counter() - began) / microbatches)
        if len(times) % 5 == 0:  # both end after the same step
            going = torch.tensor([float(len(times) < 15 or time.perf_counter() < end)])
            dist.broadcast(going, 0)
    if rank == RANKS - 1:
        times = [each for place, each in enumerate(times) if place >= 5 and place % 5]  # without broadcasts
        print(sorted(times)[len(times) // 2], flush=True)
    dist.destroy_process_group()


def main():
    size, microbatches, seconds, name = sys.argv[1:]
    port = 20000 + os.getpid() % 20000
    processes.spawn(work, (port, int(size), int(microbatches), float(seconds), name), nprocs=RANKS)


if __name__ == "__main__":
    main()
