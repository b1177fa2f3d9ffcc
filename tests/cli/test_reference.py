"""`millrace run` ends with the very weights and losses that the update rules give in plain PyTorch."""

import itertools
import math

import torch
from torch.optim import lr_scheduler as rates

import program
import reference

# (layers, kernel, cut): 1 to 4 stages, cut between layers, between a layer and its activation, and with a stage that
# has nothing to learn.
NETWORKS = [(4, 3, []), (4, 3, [4]), (4, 3, [3]), (4, 3, [7]), (4, 3, [2, 5]), (4, 3, [1, 2]),
            (4, 3, [2, 4, 6]), (4, 3, [1, 3, 7]), (5, 5, [5]), (5, 5, [3, 6]), (5, 5, [2, 6, 9])]
FEATURES = 6
GROUP = 4  # samples of a minibatch


class Reference(reference.ReferenceTest):
    lr = 0.1  # large, so that every rule leaves its mark in 30 frames
    seed = 1

    def network(self, layers=4, kernel=3, channels=3):
        torch.manual_seed(self.seed)  # any weights will do: the program reads them from a file
        network = reference.partime_cnn(layers, FEATURES, kernel, channels)
        self.start_file(network)
        return network

    def config(self, uri, cut, channels=3, task="autoencode", layers=4, kernel=3, pipeline={}, **optimizer):
        return {"source": {"uri": uri, "width": 24, "height": 16, "channels": channels},
                "task": {"kind": task},
                "model": {"layers": layers, "features": FEATURES, "kernel": kernel,
                          "weights": self.folder / "start.safetensors"},
                "pipeline": {"stages": len(cut) + 1, "cut": cut, "capture": "eager", "microbatches": GROUP, **pipeline},
                "optimizer": {"lr": self.lr, **optimizer}}

    def frames(self, count=30, channels=3):
        """(frames, their URI)"""
        frames = program.random_frames(seed=count, count=count, channels=channels)
        return frames, program.write_frames(self.folder / f"frames-{count}-{channels}", frames)

    def compare(self, cut, schedule="partime", rule=None, count=30, channels=3, task="autoencode", layers=4, kernel=3, momentum=0.0,
                orthogonal=0.0, rejected=None, **pipeline):
        """Trains both ways; weights are equal to the bit, and so is the report. Returns (network, report)."""
        frames, uri = self.frames(count, channels)
        network, make = self.network(layers, kernel, channels), reference.sgd(momentum, self.lr)
        stages = reference.cut_network(network, cut, reference.orthogonal(make, orthogonal) if orthogonal else make)
        samples = reference.autoencode(frames) if task == "autoencode" else reference.next_frame(frames)
        losses = (rule or reference.RULES[schedule])(stages, samples, group=GROUP)
        report, _ = self.learn(self.config(uri, cut, channels, task, layers, kernel, {"schedule": schedule, **pipeline},
                                           momentum=momentum, orthogonal=orthogonal))
        self.assert_weights(network.state_dict())
        rejected = count - len(losses) if rejected is None else rejected
        self.assertEqual((report["frames"]["trained"], report["frames"]["rejected"]), (count - rejected, rejected))
        if schedule in ("partime", "sequential"):  # the others keep no ages
            self.assert_same_trace(stages, losses, report)
        self.assertTrue(math.isclose(report["loss"]["first"], losses[0], rel_tol=1e-6))
        return network, report

    def assert_same_trace(self, stages, losses, report, near=1e-6):
        self.assertEqual(report["updates"], [len(stage.versions) - 1 for stage in stages])
        self.assertEqual(report["gradient_age"], [stage.age for stage in stages])
        for key, loss in {"first": losses[0], "last": losses[-1], "mean": sum(losses) / len(losses)}.items():
            self.assertTrue(math.isclose(report["loss"][key], loss, rel_tol=near), (key, report["loss"], loss))


def scheduled(optimizer, make):
    """Takes a step of the rate's schedule with each of the optimizer's."""
    if make:
        schedule, step = make(optimizer), optimizer.step
        optimizer.step = lambda: (step(), schedule.step())
    return optimizer


class ClippedAdam(torch.optim.Adam):
    """Limits each weight's |mean / sqrt(square)| to 0.5."""

    def step(self):
        before = [p.detach().clone() for p in self.param_groups[0]["params"]]
        super().step()
        for p, old in zip(self.param_groups[0]["params"], before):
            p.data = old - (0.01 * ((old - p.data) / 0.01).clamp(-0.5, 0.5))


def torch_optimizer(kind, parameters, clip=None, beta1=0.9, beta2=0.999, **options):
    """What torch.optim has for these keys of a config."""
    if kind in ("sgd", "rmsprop"):
        return {"sgd": torch.optim.SGD, "rmsprop": torch.optim.RMSprop}[kind](parameters, **options)
    made = {"adamw": torch.optim.AdamW, "adam": ClippedAdam if clip else torch.optim.Adam}[kind]
    return made(parameters, betas=(beta1, beta2), **options)


class Rules(Reference):
    @program.each(*[("partime", *network) for network in NETWORKS], *[("sequential", *network) for network in NETWORKS[-2:]])
    def test_partime_and_sequential(self, schedule, layers, kernel, cut):
        self.compare(cut, schedule, layers=layers, kernel=kernel, momentum=0.9)

    @program.each(*itertools.product(["autoencode", "next-frame"], [3, 1], [0.0, 0.9]))
    def test_tasks_channels_and_momentum(self, task, channels, momentum):
        self.compare([2, 5], task=task, channels=channels, momentum=momentum)

    @program.each(1, 2, 3, 6, 7)
    def test_streams_shorter_than_the_pipeline(self, count):
        # The first stages of four see their first gradients at samples 6, 4 and 2.
        self.compare([2, 4, 6], count=count)

    @program.each((0, []), (1, [2, 5]), (2**33 + 5, [4]))
    def test_a_seed_is_torch_manual_seed(self, seed, cut):
        torch.manual_seed(seed)
        network = reference.partime_cnn(4, FEATURES, 3, 3)
        config = self.config(self.frames(1)[1], cut, lr=0.0)
        config["model"] |= {"weights": "", "seed": seed}
        self.learn(config, "--frames", 1)
        self.assert_weights(network.state_dict())

    @program.each(
        ("sgd", {"lr": 0.1}, {"schedule": "step", "step_size": 3, "gamma": 0.5}, lambda o: rates.StepLR(o, 3, 0.5)),
        ("adam", {"lr": 0.01}, {"schedule": "cosine", "T_max": 8, "eta_min": 0.001}, lambda o: rates.CosineAnnealingLR(o, 8, 0.001)),
        ("sgd", {"lr": 0.1}, {"warmup": 4, "start_factor": 0.25, "schedule": "cosine", "T_max": 6},
         lambda o: rates.SequentialLR(o, [rates.LinearLR(o, 0.25, 1.0, 4), rates.CosineAnnealingLR(o, 6)], [4])),
        ("sgd", {"lr": 0.1, "momentum": 0.5, "weight_decay": 0.01}), ("adam", {"lr": 0.01}),
        ("adam", {"lr": 0.01, "beta1": 0.8, "beta2": 0.95, "eps": 1e-6, "weight_decay": 0.1}), ("adam", {"lr": 0.01, "clip": 0.5}),
        ("adamw", {"lr": 0.01, "beta1": 0.5, "weight_decay": 0.1}), ("rmsprop", {"lr": 0.01}),
        ("rmsprop", {"lr": 0.01, "alpha": 0.9, "eps": 1e-6, "weight_decay": 0.01, "momentum": 0.5}))
    def test_one_stage_learns_as_torch_optim(self, kind, options, schedule={}, make_schedule=None):
        frames, uri = self.frames()
        network = self.network()
        stages = reference.cut_network(network, [], lambda p: scheduled(torch_optimizer(kind, p, **options), make_schedule))
        losses = reference.sequential(stages, reference.autoencode(frames))
        report, _ = self.learn({**self.config(uri, []), "optimizer": {"kind": kind, **options, **schedule}})
        self.assertTrue(math.isclose(report["loss"]["last"], losses[-1], rel_tol=1e-5))
        self.assert_weights(network.state_dict(), rtol=1e-5, atol=1e-7)

    def test_inverse_age_divides_a_stages_rate(self):
        # Gradients of the first of two stages are 2 frames old.
        frames, uri = self.frames()
        network = self.network()
        first, last = network[:4], network[4:]
        stages = [reference.Stage(first, reference.sgd(0.9, self.lr / 3)), reference.Stage(last, reference.sgd(0.9, self.lr))]
        reference.partime(stages, reference.autoencode(frames))
        self.learn({**self.config(uri, [4], momentum=0.9), "correction": {"kind": "inverse-age"}})
        self.assert_weights(network.state_dict())

    @program.each(
        ("local", "uint8", [4], "partime", "eager", 0), ("local", "uint8", [2, 5], "partime", "eager", 0),
        ("local", "uint8", [2, 4, 6], "partime", "eager", 0.75),
        ("deep-supervision", "uint8", [4], "partime", "eager", 0),
        ("deep-supervision", "uint8", [2, 5], "pb", "eager", 0),
        ("deep-supervision", "float32", [2, 5], "pb", "eager", 0),
        ("deep-supervision", "uint8", [2, 4, 6], "partime", "eager", 0),
        ("deep-supervision", "float32", [2, 4, 6], "partime", "eager", 0),
        ("deep-supervision", "float32", [2, 4, 6], "partime", "graph", 0),
        ("deep-supervision", "uint8", [2, 4, 6], "partime", "graph", 0))
    def test_stages_learn_from_their_heads_alone_or_beside_gradients_from_downstream(self, kind, inputs, cut, schedule, capture, decay):
        frames, uri = self.frames()
        network = self.network()
        make, make_for_heads = (reference.orthogonal(reference.sgd(0.9, lr), decay) if decay else reference.sgd(0.9, lr)
                                for lr in (self.lr, 3 * self.lr))
        stages = reference.cut_network(network, cut, make)
        heads = [reference.auxiliary_head(FEATURES, 3, 5, place, make_for_heads) for place in cut]
        weight = 0 if kind == "local" else 0.87
        stored = reference.in_8_bits if inputs == "uint8" else torch.clone
        losses = reference.deep_supervision(stages, heads, reference.autoencode(frames), weight, stored)
        config = self.config(uri, cut, pipeline={"schedule": schedule, "capture": capture}, momentum=0.9, orthogonal=decay)
        report, _ = self.learn({**config, "correction": {"kind": kind, "inputs": inputs}})
        near = {"rtol": 1e-4, "atol": 1e-6} if capture == "graph" else {}
        self.assert_weights(network.state_dict(), **near)
        if not weight:  # the heads' gradients are not late
            for stage in stages:
                stage.age = 0
        self.assert_same_trace(stages, losses, report, near.get("rtol", 1e-6))


class Schedules(Reference):
    """Each ends with the weights that its definition gives."""

    lr = 0.5
    cuts = ([], [3, 5], [2, 4, 6])

    def test_each_at_every_cut(self):
        for cut in self.cuts:
            for schedule in reference.RULES:
                with self.subTest(schedule, cut=cut):
                    self.compare(cut, schedule)
            with self.subTest("pipedream with vertical_sync", cut=cut):
                self.compare(cut, "pipedream", reference.pipedream_vertical_sync, vertical_sync=True)
            if len(cut) % 2 == 1:  # an even number of stages, two a worker
                with self.subTest("interleaved", cut=cut):
                    self.compare(cut, "interleaved", reference.flushed, virtual_stages=2)

    @program.each("gpipe", "1f1b", "zb-h1", "pipedream", "2bw")
    def test_recomputation_changes_no_number(self, schedule):
        self.compare([3, 5], schedule, recompute=True)

    @program.each(([4], [2, 1], 0, 0), ([4], [1, 3], 0, 0), ([3, 5], [2, 1, 2], 0, 0), ([], [2], 0, 0),
                  ([3, 5], [4, 2, 1], 2, 0), ([4], [3, 4], 2, 0), ([4], [2, 3], 0, 0.75))
    def test_replicated_stages(self, cut, replicas, rejected, orthogonal):
        self.compare(cut, "pipedream", reference.pipedream_replicated(replicas), rejected=rejected, replicas=replicas,
                     orthogonal=orthogonal)

    @program.each("sequential", "partime", "pb", "2bw")
    def test_orthogonal_gradients(self, schedule):
        self.compare([4], schedule, orthogonal=0.75)


class Changes(Reference):
    """The network predicts the change to the last of the frames it sees."""

    def config(self, uri, cut, context=2, schedule="partime", **optimizer):
        tables = super().config(uri, cut, task="next-frame", pipeline={"schedule": schedule}, **optimizer)
        tables["task"]["context"] = context
        tables["model"]["preset"] = "residual-cnn"
        return tables

    @program.each((2, [2, 3], "partime"), (3, [3], "partime"), (1, [], "sequential"), (2, [], "partime"))
    def test_it_is_added_to_the_last_frame(self, context, cut, schedule):
        frames, uri = self.frames()
        network = reference.residual_cnn(4, FEATURES, 3, 3, context)
        self.start_file(network)
        stages = reference.cut_network(network, cut, reference.sgd(0.9, self.lr))
        losses = reference.RULES[schedule](stages, reference.change(frames, context))
        report, _ = self.learn(self.config(uri, cut, context, schedule, momentum=0.9))
        self.assert_weights(network.state_dict())
        self.assert_same_trace(stages, losses, report)

    def test_it_begins_as_the_copy_of_the_last_frame(self):
        config = self.config(self.frames()[1], [], lr=0.0)
        config["model"]["weights"] = ""
        report, _ = self.learn(config)
        self.assertAlmostEqual(report["loss"]["mean"], report["loss"]["last_frame"]["mean"], places=6)
