"""Every schedule that keeps activations or weights ends with the weights its definition gives."""

import math

import torch
from safetensors.torch import load_file, save_file

import delayed_rules
import program
import reference

LR = 0.5
CUTS = [[], [4], [3, 5], [2, 4, 6]]
MICROBATCHES = 4


class Schedules(program.CliTest):

    def compare(self, schedule, rule, cut, count=30, rejected=None, orthogonal=0.0, **pipeline):
        frames = program.random_frames(seed=3, count=count)
        uri = program.write_frames(self.folder / f"frames-{count}", frames)
        torch.manual_seed(2)
        network = reference.partime_cnn(layers=4, features=6, kernel=3, channels=3)
        save_file(network.state_dict(), self.folder / "start.safetensors")
        places = [0, *cut, len(network)]
        stages = [delayed_rules.VersionedStage(network[a:b], LR, orthogonal) for a, b in zip(places, places[1:])]
        losses = rule(stages, reference.autoencode(frames), group=MICROBATCHES)
        report, _ = self.learn({
            "source": {"uri": uri, "width": 24, "height": 16},
            "model": {"layers": 4, "features": 6, "kernel": 3, "weights": self.folder / "start.safetensors"},
            "pipeline": {"schedule": schedule, "stages": len(stages), "cut": cut, "microbatches": MICROBATCHES,
                         "capture": "eager", **pipeline},
            "optimizer": {"lr": LR, "orthogonal": orthogonal}})
        rejected = count - len(losses) if rejected is None else rejected
        self.assertEqual(report["frames"]["rejected"], rejected)
        self.assertEqual(report["frames"]["trained"], count - rejected)
        self.assertTrue(math.isclose(report["loss"]["first"], losses[0], rel_tol=1e-6))
        expected = [w for stage in stages for w in stage.versions[-1]]
        for (name, got), want in zip(load_file(self.folder / "out.safetensors").items(), expected):
            self.assertTrue(reference.same(got, want), f"{schedule} at {cut}: {name} is off by {(got - want).abs().max()}")

    def each_cut(self, schedule, rule, cuts=CUTS, **pipeline):
        for cut in cuts:
            with self.subTest(cut=cut):
                self.compare(schedule, rule, cut, **pipeline)

    def test_pb(self):
        self.each_cut("pb", delayed_rules.pb)

    def test_pipedream(self):
        self.each_cut("pipedream", delayed_rules.pipedream)

    def test_pipedream_with_vertical_sync(self):
        self.each_cut("pipedream", delayed_rules.pipedream_vertical_sync, vertical_sync=True)

    def test_2bw(self):
        self.each_cut("2bw", delayed_rules.two_buffered)

    def test_gpipe(self):
        self.each_cut("gpipe", delayed_rules.flushed)

    def test_1f1b(self):
        self.each_cut("1f1b", delayed_rules.flushed)

    def test_interleaved(self):
        self.each_cut("interleaved", delayed_rules.flushed, cuts=[[4], [2, 4, 6]], virtual_stages=2)

    def test_zb_h1(self):
        self.each_cut("zb-h1", delayed_rules.flushed)

    def test_recomputation_changes_no_number(self):
        for schedule in ("gpipe", "1f1b", "zb-h1"):
            with self.subTest(schedule):
                self.each_cut(schedule, delayed_rules.flushed, cuts=[[3, 5]], recompute=True)
        self.each_cut("pipedream", delayed_rules.pipedream, cuts=[[3, 5]], recompute=True)
        self.each_cut("2bw", delayed_rules.two_buffered, cuts=[[3, 5]], recompute=True)

    def test_replicated_stages(self):
        for cut, replicas, rejected in (([4], [2, 1], 0), ([4], [1, 3], 0), ([3, 5], [2, 1, 2], 0), ([], [2], 0),
                                        ([3, 5], [4, 2, 1], 2), ([4], [3, 4], 2)):
            with self.subTest(replicas=replicas):
                self.compare("pipedream", delayed_rules.pipedream_replicated(replicas), cut, rejected=rejected,
                             replicas=replicas)

    def test_orthogonal_gradients(self):
        for schedule, rule in (("pb", delayed_rules.pb), ("2bw", delayed_rules.two_buffered)):
            with self.subTest(schedule):
                self.compare(schedule, rule, [4], orthogonal=0.75)

    def test_orthogonal_gradients_of_replicated_stages(self):
        self.compare("pipedream", delayed_rules.pipedream_replicated([2, 3]), [4], orthogonal=0.75, replicas=[2, 3])
