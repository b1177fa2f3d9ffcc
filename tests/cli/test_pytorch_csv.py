"""Schedules to and from torch.distributed.pipelining: its CSV is run here, ours is run there."""

import csv
from types import SimpleNamespace

import torch
import torch.distributed
import torch.multiprocessing
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed import pipelining
from torch.distributed.pipelining import schedules

import program
import reference

LR = 0.5
MICROBATCHES = 4
CUT = {2: [4], 4: [2, 4, 6]}  # by the number of stages


def made():
    torch.manual_seed(2)
    return reference.partime_cnn(layers=4, features=6, kernel=3, channels=3)


def stand_in(index, count, rank, ranks):
    """As much of a PipelineStage as the schedules' constructors look at."""
    return SimpleNamespace(stage_index=index, num_stages=count, group_rank=rank, group_size=ranks, group=None,
                           is_first=index == 0, is_last=index == count - 1, has_backward=True, submod=nn.Identity())


def written_by_pytorch(name, ranks):
    """(stages, {rank: actions}) of PyTorch's own schedule of that name."""
    def mse(output, target):
        return nn.functional.mse_loss(output, target)
    if name in ("ScheduleGPipe", "Schedule1F1B"):
        schedule = getattr(schedules, name)(stand_in(0, ranks, 0, ranks), MICROBATCHES, mse)
        return ranks, schedule._get_pipeline_order()
    count = 2 * ranks
    mine = [0, count - 1] if name == "ScheduleZBVZeroBubble" else [0, ranks]
    stages = [stand_in(index, count, 0, ranks) for index in mine]
    return count, getattr(schedules, name)(stages, MICROBATCHES, loss_fn=mse).pipeline_order


class FromPyTorch(reference.ReferenceTest):
    @program.each("ScheduleGPipe", "Schedule1F1B", "ScheduleInterleaved1F1B", "ScheduleLoopedBFS",
                  "ScheduleZBVZeroBubble", "ScheduleInterleavedZeroBubble")
    def test_each_is_read_verified_and_run(self, name):
        count, order = written_by_pytorch(name, ranks=2)
        path = self.folder / f"{name}.csv"
        with open(path, "w", newline="") as file:  # as PyTorch's _dump_csv does
            csv.writer(file).writerows(order[rank] for rank in order)
        shown = self.succeed("schedule", path, "--samples", MICROBATCHES)
        self.assertIn("bubble", shown.out)
        frames = program.random_frames(seed=3, count=12)
        network, cut = made(), CUT[count]
        start = self.start_file(network)
        stages = reference.cut_network(network, cut, reference.sgd(0.0, LR))
        reference.flushed(stages, reference.autoencode(frames), group=MICROBATCHES)
        report, _ = self.learn({
            "source": {"uri": program.write_frames(self.folder / "frames", frames), "width": 24, "height": 16},
            "model": {"layers": 4, "features": 6, "kernel": 3, "weights": start},
            "pipeline": {"schedule": path, "stages": count, "cut": cut}, "optimizer": {"lr": LR}})
        self.assertEqual(report["updates"], [3] * count)
        # LoopedBFS adds a minibatch's gradients up backwards, so the last bit may differ.
        self.assert_weights(network.state_dict(), rtol=1e-5, atol=1e-7)

    def test_bad_files_say_where(self):
        path = self.folder / "bad.csv"
        for text, *parts in (("0F0,0B0\n1F0,1Q0\n", "bad.csv:2:5", "1Q0"), ("0F0,0F1,0B1\n", "bad.csv", "clock")):
            path.write_text(text)
            self.assert_each_refused(((("schedule", path), *parts), (("run", *program.sets(
                f"pipeline.schedule={path}", "pipeline.stages=1")), *parts)))
        (self.folder / "zero.csv").symlink_to("/dev/zero")
        for name in ("none.csv", "zero.csv"):
            self.assert_refused(program.BAD_USAGE, program.call("schedule", self.folder / name), name, "cannot be read")
        path.write_text("0F0,0B0\n")
        self.assert_refused(program.BAD_USAGE, program.call(
            "check", "--set", f"pipeline.schedule={path}", "--set", "pipeline.stages=2"), "1 stages")


def run_rank(rank, ranks, folder, names):
    """One process of PyTorch's pipeline: runs each CSV for a minibatch and saves its stages' gradients."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    frames = program.random_frames(seed=3, count=MICROBATCHES)
    batch = torch.cat([x for x, _ in reference.autoencode(frames)])
    for name, count in names.items():
        network = made()
        places = [0, *CUT[count], len(network)]
        mine = [index for index in range(count) if index % ranks == rank]
        stages = [pipelining.PipelineStage(network[places[i]:places[i + 1]], i, count, torch.device("cpu"))
                  for i in mine]
        schedule = schedules._PipelineScheduleRuntime(stages, MICROBATCHES, loss_fn=nn.functional.mse_loss)
        schedule._load_csv(f"{folder}/{name}.csv")
        schedule.step(*([batch] if rank == 0 else []), target=batch)
        gradients = {key: p.grad for key, p in network.named_parameters() if p.grad is not None}
        save_file(gradients, f"{folder}/{name}-{rank}.safetensors")
    torch.distributed.destroy_process_group()


class ToPyTorch(program.CliTest):
    def test_pytorch_runs_what_we_write(self):
        names = {"gpipe": 2, "1f1b": 2, "zb-h1": 2, "interleaved": 4}
        for name, count in names.items():
            shown = self.succeed("schedule", name, "--stages", count, "--samples", MICROBATCHES, "--format", "csv")
            (self.folder / f"{name}.csv").write_text(shown.out)
        torch.multiprocessing.spawn(run_rank, (2, str(self.folder), names), nprocs=2)
        expected = self.minibatch_gradient()
        for name in names:
            got = {k: v for rank in range(2) for k, v in load_file(self.folder / f"{name}-{rank}.safetensors").items()}
            self.assertEqual(got.keys(), expected.keys())
            for key, want in expected.items():
                self.assertTrue(torch.allclose(got[key], want, rtol=1e-4, atol=1e-7), (name, key))

    def minibatch_gradient(self):
        network = made()
        samples = reference.autoencode(program.random_frames(seed=3, count=MICROBATCHES))
        loss = sum(nn.functional.mse_loss(network(x), y) for x, y in samples) / MICROBATCHES
        return dict(zip((name for name, _ in network.named_parameters()),
                        torch.autograd.grad(loss, list(network.parameters()))))
