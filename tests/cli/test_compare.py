"""`millrace compare`: reports of several runs side by side."""

import program


class Compare(program.CliTest):

    def reports(self):
        """Two runs that differ in one key."""
        paths = []
        for rate in (0.001, 0.01):
            paths.append(self.folder / f"{rate}.json")
            self.succeed("run", "--quiet", "--report", paths[-1], *program.settings({
                "source": {"uri": "synth:shapes?frames=30", "width": 16, "height": 12},
                **program.PLAIN, "model": {"preset": "partime-cnn", "layers": 2, "features": 2}, "pipeline": {"cut": [2]}, "optimizer": {"lr": rate},
                "output": {"log": self.folder / f"{rate}.jsonl", "log_every": 1}}))
        return paths

    def test_two_runs(self):
        first, second = self.reports()
        logs = f"{self.folder}/0.001.jsonl,{self.folder}/0.01.jsonl"
        plain = program.call("compare", first, second, "--plot", self.folder / "own.png")  # the reports name their logs
        outcome = program.call("compare", first, second, "--logs", logs, "--plot", self.folder / "loss.png")
        self.assertEqual((plain.code, plain.out.replace("own.png", "loss.png")), (program.DONE, outcome.out))
        self.assert_code(program.DONE, outcome)
        lines = outcome.out.splitlines()
        self.assertEqual(lines[0].split(), [str(first), str(second)])
        self.assertIn(["optimizer.lr", "0.001", "0.01"], [line.split() for line in lines])
        trained, = (line.split() for line in lines if line.startswith("frames trained"))
        self.assertEqual(trained, ["frames", "trained", "30", "30"])
        self.assertTrue(any(line.startswith("loss, last 100") for line in lines), outcome.out)
        self.assertGreater(program.png_size(self.folder / "loss.png")[0], 100)

    def test_bad_usage(self):
        none, empty, broken = (self.folder / f"{name}.json" for name in ("none", "empty", "broken"))
        empty.write_text("{}")
        broken.write_text("[1, 2")
        self.assert_each_refused((("compare", path), f"{path}: ", part) for path, part in (
            (none, ""), (empty, "no report"), (broken, "")))
        self.assert_code(program.BAD_USAGE, program.call("compare"))
