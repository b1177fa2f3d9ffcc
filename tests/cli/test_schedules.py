"""Every schedule that keeps activations or weights ends with the weights its definition gives."""

import math

import torch

import program
import reference

LR = 0.5
CUTS = [[], [4], [3, 5], [2, 4, 6]]
MICROBATCHES = 4


class Schedules(reference.ReferenceTest):

    def compare(self, schedule, rule, cut, count=30, rejected=None, orthogonal=0.0, **pipeline):
        frames = program.random_frames(seed=3, count=count)
        uri = program.write_frames(self.folder / f"frames-{count}", frames)
        torch.manual_seed(2)
        network = reference.partime_cnn(layers=4, features=6, kernel=3, channels=3)
        make = reference.sgd(0.0, LR)
        stages = reference.cut_network(network, cut, reference.orthogonal(make, orthogonal) if orthogonal else make)
        start = self.start_file(network)
        losses = rule(stages, reference.autoencode(frames), group=MICROBATCHES).losses
        report, _ = self.learn({
            "source": {"uri": uri, "width": 24, "height": 16},
            "model": {"layers": 4, "features": 6, "kernel": 3, "weights": start},
            "pipeline": {"schedule": schedule, "stages": len(stages), "cut": cut, "microbatches": MICROBATCHES,
                         "capture": "eager", **pipeline},
            "optimizer": {"lr": LR, "orthogonal": orthogonal}})
        rejected = count - len(losses) if rejected is None else rejected
        self.assertEqual(report["frames"]["rejected"], rejected)
        self.assertEqual(report["frames"]["trained"], count - rejected)
        self.assertTrue(math.isclose(report["loss"]["first"], losses[0], rel_tol=1e-6))
        self.assert_weights(network.state_dict())

    def test_each_at_every_cut(self):
        for schedule, rule in reference.RULES.items():
            for cut in CUTS:
                with self.subTest(schedule, cut=cut):
                    self.compare(schedule, rule, cut)
        for cut in ([4], [2, 4, 6]):
            with self.subTest("interleaved", cut=cut):
                self.compare("interleaved", reference.flushed, cut, virtual_stages=2)

    def test_pipedream_with_vertical_sync(self):
        for cut in CUTS:
            with self.subTest(cut=cut):
                self.compare("pipedream", reference.pipedream_vertical_sync, cut, vertical_sync=True)

    def test_recomputation_changes_no_number(self):
        for schedule in ("gpipe", "1f1b", "zb-h1", "pipedream", "2bw"):
            with self.subTest(schedule):
                self.compare(schedule, reference.RULES[schedule], [3, 5], recompute=True)

    def test_replicated_stages(self):
        for cut, replicas, rejected in (([4], [2, 1], 0), ([4], [1, 3], 0), ([3, 5], [2, 1, 2], 0), ([], [2], 0),
                                        ([3, 5], [4, 2, 1], 2), ([4], [3, 4], 2)):
            with self.subTest(replicas=replicas):
                self.compare("pipedream", reference.pipedream_replicated(replicas), cut, rejected=rejected,
                             replicas=replicas)

    def test_orthogonal_gradients(self):
        for schedule in ("sequential", "partime", "pb", "2bw"):
            with self.subTest(schedule):
                self.compare(schedule, reference.RULES[schedule], [4], orthogonal=0.75)

    def test_orthogonal_gradients_of_replicated_stages(self):
        self.compare("pipedream", reference.pipedream_replicated([2, 3]), [4], orthogonal=0.75, replicas=[2, 3])
