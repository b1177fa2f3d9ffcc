"""A stream that is too fast: what each policy does, with exact counts.

The budget is so small (or so large) that the verdict is certain on every machine; drop = "never"
makes the queue lose nothing, so that every frame must be found again.
"""

from safetensors.torch import load_file

import program

# 12 modules; the first convolution is by far the cheapest.
MODEL = {"layers": 6, "features": 8, "kernel": 3}


class Overload(program.CliTest):
    def run_with(self, policy, fps=100000.0, cut=6, frames=2500, pipeline={}, source={}, **tables):
        return self.learn(program.small(
            f"synth:shapes?frames={frames}",
            source={"pace": "live", "fps": 800.0, "drop": "never", **source}, model=MODEL,
            pipeline={"cut": [cut], **pipeline}, monitor={"fps": fps, "policy": policy}, **tables))

    def changes(self, report, outcome):
        """Those that stderr tells of, which are the report's."""
        lines = [line.removeprefix("overload: ") for line in outcome.err.splitlines()
                 if line.startswith("overload: ")]
        self.assertEqual([change["what"] for change in report["overload"]["latest"]], lines)
        self.assertEqual(report["overload"]["changes"], len(lines))
        return lines

    def test_drop_says_so_once(self):
        report, outcome = self.run_with("drop", source={"drop": "newest"})
        line, = self.changes(report, outcome)
        self.assertRegex(line, r"^late: stage \d took [\d.]+ ms of 0\.01 ms$")
        self.assertEqual(report["overload"]["policy"], "drop")
        self.assertTrue(report["overload"]["late"])
        self.assertEqual(report["overload"]["predicted_only"], 0)

    @program.each(("partime", 1), ("pipedream", 1), ("1f1b", 4))
    def test_skip_predicts_every_frame_and_trains_on_some(self, schedule, samples):
        report, outcome = self.run_with("skip", pipeline={"schedule": schedule})
        frames, predicted = report["frames"], report["overload"]["predicted_only"]
        self.assertGreater(predicted, 0)
        self.assertEqual((frames["received"], frames["dropped"]), (2500, predicted))
        self.assertEqual(frames["trained"] + predicted, 2500)
        self.assertGreater(report["overload"]["train_every"], 1)
        self.assertRegex(self.changes(report, outcome)[0],
                         r"^train every: 1 -> \d+: stage \d took [\d.]+ ms of 0\.01 ms$")
        self.assertEqual(report["updates"][-1], frames["trained"] // samples)
        self.assertEqual(report["guard"]["skipped_updates"], [0, 0])

    @program.each((400, {"fps": 0.001}), (2500, {"source": {"pace": "asap"}}))
    def test_skip_trains_on_all_if_there_is_time_or_the_source_waits(self, count, what):
        report, outcome = self.run_with("skip", frames=count, **what)
        self.assertEqual(report["frames"]["trained"], count)
        self.assertEqual(self.changes(report, outcome), [])

    @program.each("partime", "1f1b")
    def test_recut_moves_modules_loses_no_frame_and_tears_no_minibatch(self, schedule):
        report, outcome = self.run_with(
            "recut", cut=1, pipeline={"schedule": schedule},
            optimizer={"kind": "adam", "lr": 0.001},
            checkpoint={"dir": self.folder / schedule, "every": 100})
        self.assertEqual(report["frames"]["trained"], 2500)
        # On a busy machine the cheap stage may seem the slow one for a while.
        cuts = [line for line in self.changes(report, outcome) if line.startswith("re-cut")]
        self.assertRegex(cuts[0], r"^re-cut: 1 -> \d+: stage 1 took [\d.]+ ms of 0\.01 ms$")
        self.assertEqual(report["cut"], [int(cuts[-1].split(":")[1].split("->")[1])])
        # After each cut partime's first stage waits again for its first gradient.
        self.assertEqual(report["updates"], [625, 625] if schedule == "1f1b" else
                         [2500 - 2 * (1 + len(cuts)), 2500])
        self.assertEqual(len(load_file(self.folder / "out.safetensors")), 12)
        held = load_file(self.folder / schedule / "checkpoint.safetensors")
        self.assertEqual(sum(name.startswith("optimizer.") for name in held), 3 * 12)
