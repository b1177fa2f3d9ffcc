"""`millrace profile`: what each module costs here. Says nothing of how fast anything is."""

import json
import pathlib
import shutil
import tempfile

import program

SMALL = {"source": {"uri": "synth:shapes", "width": 16, "height": 12}, "task": {"kind": "autoencode"},
         "model": {"preset": "partime-cnn", "layers": 2, "features": 4, "kernel": 5}}


class Profile(program.CliTest):

    @classmethod
    def setUpClass(cls):
        """One profile for all that is asked of it: measuring takes its time."""
        super().setUpClass()
        folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.path = folder / "out.json"
        config = program.write_toml(folder / "config.toml", SMALL)
        cls.outcome = program.call("profile", config, "--json", cls.path, "--set", "optimizer.kind=sgd",
                                   "--set", "optimizer.momentum=0.9")

    def test_json(self):
        self.assert_code(program.DONE, self.outcome)
        found = json.loads(self.path.read_text())
        self.assertEqual(found["network"], "partime-cnn at 16x12")
        self.assertEqual(found["input_bytes"], 3 * 16 * 12 * 4)
        self.assertEqual(found["thread_speedup"][0], 1)
        conv, relu, last, sigmoid = found["modules"]
        self.assertGreaterEqual(conv["weight_bytes"], 4 * (4 * 3 * 5 * 5 + 4))  # in a buffer with gaps
        self.assertEqual(conv["state_bytes"], conv["weight_bytes"])
        self.assertEqual((conv["activation_bytes"], sigmoid["activation_bytes"]), (4 * 16 * 12 * 4, 3 * 16 * 12 * 4))
        self.assertEqual((relu["weight_bytes"], relu["weight_gradient_ms"], relu["update_ms"]), (0, [0, 0], [0, 0]))
        self.assertEqual(conv["input_gradient_ms"], [0, 0])
        for name in ("forward_ms", "input_gradient_ms", "weight_gradient_ms", "update_ms"):
            self.assertGreater(last[name][0], 0, name)

    def test_text(self):
        out = self.outcome.out
        lines = out.splitlines()
        self.assertIn("partime-cnn at 16x12 on cpu:0", lines[0])
        self.assertRegex(lines[2], r"^ +0 \S.* \d+\.\d{4} \(\d+\.\d{4}\)")
        self.assertIn("ms a sample", out)
        self.assertRegex(out, r"(?m)^speed on 1, 2, ... cores: 1.00 [^;]*(; a stage is no quicker on \d cores or more, so plans give it fewer)?$")

    def test_operators_beside_what_the_core_could_do(self):
        config = program.write_toml(self.folder / "c.toml", {**SMALL, "pipeline": {"stages": 2, "cut": [2]}})
        outcome = self.succeed("profile", config, "--operators")
        self.assertRegex(outcome.out, r"forward 3x12x16 -> 4x12x16 k5 s1 relu +\S+ +\d+\.\d+ +\d+\.\d% +\d+\.\d +\d+%")
        self.assertRegex(outcome.out, r"stage 1\n(.*\n)+ +update by adam ")
        self.assertRegex(outcome.out, r"peak, .*: \d+\.\d GFLOP/s; its sgemm: \d+\.\d GFLOP/s")

    def test_plan_and_simulate_read_it(self):
        for command in (["plan", self.path], ["simulate", "partime", "--stages", "2", "--profile", self.path]):
            self.assert_code(program.DONE, program.call(*command))

    def test_bad_usage(self):
        bad, config = self.write({"model": {"layrs": 2}}, "bad.toml"), self.write(SMALL)
        self.assert_each_refused((("profile", *words), *parts) for words, *parts in (
            ([bad], "bad.toml:2", "layers"), ([self.folder / "none.toml"], "none.toml"),
            ([config, "--sett", "a.b=1"], "--sett"), ([config, "--set", "model.layers=0"], "layers")))

    def test_a_file_that_cannot_be_written(self):
        config = program.write_toml(self.folder / "small.toml", SMALL)
        (self.folder / "file").write_text("")
        outcome = program.call("profile", config, "--json", self.folder / "file" / "x.json")
        self.assert_code(program.FAILED, outcome)
        self.assert_one_error(outcome, "x.json")
