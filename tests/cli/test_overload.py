"""A stream that is too fast: what each policy does, with exact counts.

The budget is so small (or so large) that the verdict is certain on every machine; drop = "never" makes the queue lose
nothing, so that every frame must be found again.
"""

from safetensors.torch import load_file

import program

MODEL = {"layers": 6, "features": 8, "kernel": 3}  # 12 modules; the first convolution is by far the cheapest


class OverloadTest(program.CliTest):
    def run_with(self, policy, *options, fps=100000.0, cut=(6,), frames=2500, pipeline={}, source={}, **tables):
        return self.learn(program.small(
            f"synth:shapes?frames={frames}", source={"pace": "live", "fps": 800.0, "drop": "never", **source},
            model=MODEL, pipeline={"cut": list(cut), **pipeline}, monitor={"fps": fps, "policy": policy}, **tables), *options)

    def lines(self, outcome, begin=""):
        lines = [line.removeprefix("overload: ") for line in outcome.err.splitlines() if line.startswith("overload: ")]
        return [line for line in lines if line.startswith(begin)]

    def assert_logged(self, report, outcome):
        """stderr and report have the same changes."""
        self.assertEqual([change["what"] for change in report["overload"]["latest"]], self.lines(outcome))
        self.assertEqual(report["overload"]["changes"], len(self.lines(outcome)))


class Policies(OverloadTest):
    def test_drop_says_so_once(self):
        report, outcome = self.run_with("drop", source={"drop": "newest"})
        self.assert_balanced(report)
        self.assertEqual(len(self.lines(outcome)), 1)
        self.assertRegex(self.lines(outcome)[0], r"^late: stage \d took [\d.]+ ms of 0\.01 ms$")
        self.assert_logged(report, outcome)
        self.assertEqual(report["overload"]["policy"], "drop")
        self.assertTrue(report["overload"]["late"])
        self.assertEqual(report["overload"]["predicted_only"], 0)

    def test_frames_counts_frames_that_are_trained(self):
        for policy, count, cut in (("skip", 400, [6]), ("recut", 700, [1])):
            with self.subTest(policy):
                report, _ = self.run_with(policy, "--frames", count, frames=100000, cut=cut)
                self.assert_balanced(report)
                self.assertEqual(report["frames"]["trained"], count)


class Skip(OverloadTest):
    def test_every_frame_is_predicted_and_some_are_trained(self):
        for schedule in ("partime", "pipedream", "1f1b"):
            with self.subTest(schedule):
                report, outcome = self.run_with("skip", pipeline={"schedule": schedule})
                frames, predicted = report["frames"], report["overload"]["predicted_only"]
                self.assert_balanced(report)
                self.assertEqual(frames["received"], 2500)
                self.assertGreater(predicted, 0)
                self.assertEqual(frames["dropped"], predicted)
                self.assertEqual(frames["trained"] + predicted, 2500)
                self.assertGreater(report["overload"]["train_every"], 1)
                self.assertRegex(self.lines(outcome)[0], r"^train every: 1 -> \d+: stage \d took [\d.]+ ms of 0\.01 ms$")
                self.assert_logged(report, outcome)
                updates = frames["trained"] // (4 if schedule == "1f1b" else 1)
                self.assertEqual(report["updates"][-1], updates)
                self.assertEqual(report["guard"]["skipped_updates"], [0, 0])

    def test_all_frames_are_trained_if_there_is_time_or_the_source_waits(self):
        for count, what in ((400, {"fps": 0.001}), (2500, {"source": {"pace": "asap"}})):
            with self.subTest(what):
                report, outcome = self.run_with("skip", frames=count, **what)
                self.assertEqual(report["frames"]["trained"], count)
                self.assertEqual(self.lines(outcome), [])


class Recut(OverloadTest):
    """Only lines about cuts count: on a busy machine the cheap stage may seem the slow one for a while."""

    def test_modules_move_and_no_frame_is_lost(self):
        report, outcome = self.run_with("recut", cut=[1])
        self.assert_balanced(report)
        self.assertEqual(report["frames"]["trained"], 2500)
        self.assertEqual(report["frames"]["dropped"], 0)
        cuts = self.lines(outcome, "re-cut")
        self.assertRegex(cuts[0], r"^re-cut: 1 -> \d+: stage 1 took [\d.]+ ms of 0\.01 ms$")
        self.assert_logged(report, outcome)
        self.assertEqual(report["cut"], [int(cuts[-1].split(":")[1].split("->")[1])])
        # After each cut partime's first stage waits again for its first gradient.
        self.assertEqual(report["updates"], [2500 - 2 * (1 + len(cuts)), 2500])
        self.assertEqual(len(load_file(self.folder / "out.safetensors")), 12)

    def test_a_minibatch_is_not_torn(self):
        report, outcome = self.run_with("recut", cut=[1], pipeline={"schedule": "1f1b"})
        self.assertEqual(report["frames"]["trained"], 2500)
        self.assertEqual(report["updates"], [625, 625])
        self.assertRegex(self.lines(outcome, "re-cut")[0], "^re-cut: 1 -> ")

    def test_checkpoints_go_on(self):
        _, outcome = self.run_with("recut", cut=[1], optimizer={"kind": "adam", "lr": 0.001},
                                   checkpoint={"dir": self.folder, "every": 100})
        self.assertRegex(self.lines(outcome, "re-cut")[0], "^re-cut: 1 -> ")
        held = load_file(self.folder / "checkpoint.safetensors")
        self.assertEqual(sum(name.startswith("optimizer.") for name in held), 3 * 12)

    def test_needs_stages_to_move_modules_between(self):
        for pipeline, named in (({"stages": 1}, "pipeline.stages"),
                                ({"stages": 2, "schedule": "pipedream", "replicas": [2, 1]}, "pipeline.replicas")):
            tables = {"pipeline": pipeline, "monitor": {"policy": "recut"}}
            self.assert_check_refuses(tables, "monitor.policy", named)
