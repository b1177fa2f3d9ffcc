"""Samples that are learned from again: as many as asked, counted apart, the same in every run."""

import random

import program


class Replay(program.CliTest):
    def config(self, uri="synth:shapes?frames=60", task="autoencode", source={}, **replay):
        return program.small(uri, source=source, task={"kind": task}, replay=replay)

    def test_the_share_is_replayed_and_counted_apart(self):
        for kind, task, trained in (("recent", "autoencode", 60), ("hard", "autoencode", 60),
                                    ("reservoir", "next-frame", 59)):
            with self.subTest(kind=kind, task=task):
                report, _ = self.learn(self.config(kind=kind, size=8, share=0.5, task=task))
                self.assert_balanced(report)
                self.assertEqual(report["frames"]["trained"], trained)
                self.assertAlmostEqual(report["frames"]["replayed"], trained, delta=6)
                self.assertEqual(report["updates"][1], trained + report["frames"]["replayed"])
                self.assertEqual(report["replay"]["kept"], 8)

    def test_summary_log_and_picture_show_only_fresh_frames(self):
        log = self.folder / "log.jsonl"
        output = {"log": log, "log_every": 1, "prediction": self.folder / "last.png"}
        outcome = self.succeed("run", self.write({**self.config(kind="recent", size=8, share=0.5), "output": output}))
        self.assertRegex(outcome.out, r"60 trained .* replayed, 0\.\d+ of all trained samples")
        lines = program.lines_of(log)
        self.assertEqual([line["frame"] for line in lines], list(range(60)))
        self.assertEqual([line["source_frame"] for line in lines], list(range(60)))
        self.assertTrue((self.folder / "last.png").exists())

    def test_frames_and_checkpoints_count_fresh_frames(self):
        config = self.config("synth:shapes", kind="recent", size=8, share=0.5)
        config["checkpoint"] = {"dir": self.folder / "kept", "every": 10, "resume": True}
        report, _ = self.learn(config, "--frames", 40)
        self.assertEqual(report["frames"]["trained"], 40)
        report, _ = self.learn(config, "--frames", 5)
        self.assertEqual(report["run"]["resumed"]["frames"], 40)
        self.assertEqual(report["frames"]["trained"], 5)

    def test_a_class_comes_again_with_its_own_picture(self):
        """Bright on the left or on the right, at random; every fifth picture has no class."""
        pictures, chance = program.random_frames(1, 120) // 2, random.Random(7)
        names = [chance.choice(("left", "right")) for _ in pictures]
        for picture, name in zip(pictures, names):
            picture[:, slice(12) if name == "left" else slice(12, None)] += 100
        rows = [f"{n},{names[n]}" for n in range(120) if n % 5 != 4]
        (self.folder / "classes.csv").write_text("\n".join(["frame,class", *rows]) + "\n")
        config = self.config(program.write_frames(self.folder / "frames", pictures), kind="reservoir", size=16, share=0.75)
        report, _ = self.learn(config | {
            "task": {"kind": "label", "loss": "cross-entropy", "labels": self.folder / "classes.csv"},
            "model": {"preset": "layers", "layer": [{"type": "flatten"}, {"type": "linear", "out": 2}]},
            "pipeline": {"stages": 1}, "optimizer": {"kind": "sgd", "lr": 0.001}})
        frames = report["frames"]
        self.assertGreater(frames["replayed"], 2 * len(rows))
        self.assertEqual(report["updates"], [len(rows) + frames["replayed"]], "a picture without a class teaches nothing")
        self.assertGreater(report["accuracy"]["mean"], 0.85, "learned from classes of other pictures")

    def test_a_live_stream_is_replayed_and_loses_no_frame(self):
        for task in ("autoencode", "next-frame"):
            with self.subTest(task):
                live = {"pace": "live", "fps": 4.0}  # idle for long, on a busy machine too
                report, _ = self.learn(self.config("synth:shapes?frames=24", kind="reservoir", size=16, task=task, source=live))
                self.assertEqual(report["frames"]["received"] - report["frames"]["rejected"], report["frames"]["trained"], report["frames"])
                self.assertGreater(report["frames"]["replayed"], 0)

    def test_a_file_read_as_fast_as_it_goes_leaves_none(self):
        report, _ = self.learn(self.config(kind="reservoir", size=16))
        self.assertEqual(report["frames"]["replayed"], 0)

    def test_what_cannot_be_is_refused(self):
        self.assert_check_refuses(self.config(share=0.5), "replay.share", "needs replay.kind")
        config = self.config(kind="recent", size=1 << 24, source={"width": 1280, "height": 720})
        self.assert_check_refuses(config, "replay.size", "GB")
