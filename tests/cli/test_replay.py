"""Samples that are learned from again: as many as asked, counted apart, the same in every run."""

import program


class Replay(program.CliTest):
    def config(self, uri="synth:shapes?frames=60", task="autoencode", source={}, **replay):
        return program.small(uri, source=source, task={"kind": task}, replay=replay)

    def test_summary_log_and_picture_show_only_fresh_frames(self):
        log = self.folder / "log.jsonl"
        output = {"log": log, "log_every": 1, "prediction": self.folder / "last.png"}
        report, outcome = self.reported("run", self.write({**self.config(kind="recent", size=8, share=0.5), "output": output}))
        self.assertEqual(report["updates"][1], 60 + report["frames"]["replayed"])
        self.assertEqual(report["replay"]["kept"], 8)
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

    def test_a_file_read_as_fast_as_it_goes_leaves_none(self):
        report, _ = self.learn(self.config(kind="reservoir", size=16))
        self.assertEqual(report["frames"]["replayed"], 0)

    def test_what_cannot_be_is_refused(self):
        self.assert_check_refuses(self.config(share=0.5), "replay.share", "needs replay.kind")
        config = self.config(kind="recent", size=1 << 24, source={"width": 1280, "height": 720})
        self.assert_check_refuses(config, "replay.size", "GB")
