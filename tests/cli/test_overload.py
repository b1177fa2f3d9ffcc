"""A stream that is too fast: what each policy does about it, exactly counted.

The budget is made so small (or so large) that the verdict is certain whatever the machine; drop = "never" has the
queue lose nothing, so that every frame must be found again.
"""

import unittest

from safetensors.torch import load_file

import program

MODEL = {"layers": 6, "features": 8, "kernel": 3}  # 12 modules; the first convolution is by far the cheapest


class Overload(program.CliTest):

    def run_with(self, policy, *options, fps=100000.0, cut=(6,), frames=2500, pipeline=None, **source):
        self.weights = self.folder / "out.safetensors"
        return self.learn({
            "source": {"uri": f"synth:shapes?frames={frames}", "width": 24, "height": 16, "pace": "live", "fps": 800.0,
                       "drop": "never", **source},
            "model": MODEL, "pipeline": {"stages": len(cut) + 1, "cut": list(cut), **(pipeline or {})},
            "monitor": {"fps": fps, "policy": policy}}, *options)

    def lines(self, outcome):
        return [line.removeprefix("overload: ") for line in outcome.err.splitlines() if line.startswith("overload: ")]

    def assert_logged(self, report, outcome):
        """What stderr tells is what the report holds."""
        self.assertEqual([change["what"] for change in report["overload"]["latest"]], self.lines(outcome))
        self.assertEqual(report["overload"]["changes"], len(self.lines(outcome)))


class Drop(Overload):

    def test_says_so_once(self):
        report, outcome = self.run_with("drop", drop="newest")
        self.assert_balanced(report)
        self.assertEqual(len(self.lines(outcome)), 1)
        self.assertRegex(self.lines(outcome)[0], r"^late: stage \d took [\d.]+ ms of 0\.01 ms$")
        self.assert_logged(report, outcome)
        self.assertEqual(report["overload"]["policy"], "drop")
        self.assertTrue(report["overload"]["late"])
        self.assertEqual(report["overload"]["predicted_only"], 0)


class Skip(Overload):

    def test_every_frame_is_predicted_and_some_are_learned_from(self):
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

    def test_frames_are_frames_learned_from(self):
        report, _ = self.run_with("skip", "--frames", 400, frames=100000)
        self.assert_balanced(report)
        self.assertEqual(report["frames"]["trained"], 400)

    def test_where_there_is_room_all_are_learned_from(self):
        report, outcome = self.run_with("skip", fps=0.001, frames=400)
        self.assertEqual(report["frames"]["trained"], 400)
        self.assertEqual(self.lines(outcome), [])

    def test_a_source_that_waits_is_never_too_fast(self):
        report, outcome = self.run_with("skip", pace="asap")
        self.assertEqual(report["frames"]["trained"], 2500)
        self.assertEqual(self.lines(outcome), [])


class Recut(Overload):

    def cuts(self, outcome):
        """Not its first lines: where others use the cores, the cheap stage may seem the slow one for a while."""
        return [line for line in self.lines(outcome) if line.startswith("re-cut")]

    def test_modules_move_and_no_frame_is_lost(self):
        report, outcome = self.run_with("recut", cut=[1])
        self.assert_balanced(report)
        self.assertEqual(report["frames"]["trained"], 2500)
        self.assertEqual(report["frames"]["dropped"], 0)
        cuts = self.cuts(outcome)
        self.assertRegex(cuts[0], r"^re-cut: 1 -> \d+: stage 1 took [\d.]+ ms of 0\.01 ms$")
        self.assert_logged(report, outcome)
        self.assertEqual(report["cut"], [int(cuts[-1].split(":")[1].split("->")[1])])
        # partime's first stage waits for its first gradient each time anew.
        self.assertEqual(report["updates"], [2500 - 2 * (1 + len(cuts)), 2500])
        self.assertEqual(len(load_file(self.weights)), 12)

    def test_frames_are_counted_over_all_cuts(self):
        report, _ = self.run_with("recut", "--frames", 700, cut=[1], frames=100000)
        self.assert_balanced(report)
        self.assertEqual(report["frames"]["trained"], 700)

    def test_a_minibatch_is_not_torn(self):
        report, outcome = self.run_with("recut", cut=[1], pipeline={"schedule": "1f1b"})
        self.assertEqual(report["frames"]["trained"], 2500)
        self.assertEqual(report["updates"], [625, 625])
        self.assertRegex(self.cuts(outcome)[0], "^re-cut: 1 -> ")

    def test_checkpoints_go_on(self):
        report, outcome = self.learn({
            "source": {"uri": "synth:shapes?frames=2500", "width": 24, "height": 16, "pace": "live", "fps": 800.0,
                       "drop": "never"},
            "model": MODEL, "pipeline": {"stages": 2, "cut": [1]}, "optimizer": {"kind": "adam", "lr": 0.001},
            "monitor": {"fps": 100000.0, "policy": "recut"}, "checkpoint": {"dir": self.folder, "every": 100}})[0:2]
        self.assertRegex(self.cuts(outcome)[0], "^re-cut: 1 -> ")
        held = load_file(self.folder / "checkpoint.safetensors")
        self.assertEqual(sum(name.startswith("optimizer.") for name in held), 3 * 12)

    def test_needs_stages_to_move_modules_between(self):
        for pipeline, named in (({"stages": 1}, "pipeline.stages"),
                                ({"stages": 2, "schedule": "pipedream", "replicas": [2, 1]}, "pipeline.replicas")):
            config = program.write_toml(self.folder / "bad.toml",
                                        {"pipeline": pipeline, "monitor": {"policy": "recut"}})
            self.assert_refused(program.BAD_USAGE, program.call("check", config), "monitor.policy", named)


if __name__ == "__main__":
    unittest.main()
