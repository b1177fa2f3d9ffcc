"""`millrace profile`: what each module costs here, however fast it is. `millrace plan`: the best cut for that, and the table
of it that `run` reads."""

import json
import pathlib
import tempfile
import tomllib

import program
from profiles import module, write_profile

GRAPH = """\
node1 -- Input -- forward_compute_time=9.0, backward_compute_time=0.0, activation_size=9.0, parameter_size=0.0
node2 -- Conv2d(3, 4) -- forward_compute_time=1.0, backward_compute_time=2.0, activation_size=10.0, parameter_size=5.0
node3 -- ReLU -- forward_compute_time=2.0, backward_compute_time=1.0, activation_size=20.0, parameter_size=0.0
node4 -- Linear(4, 2) -- forward_compute_time=4.0, backward_compute_time=8.0, activation_size=[4.0; 2.0], \
parameter_size=7.0
\tnode1 -- node2
\tnode2 -- node3
\tnode3 -- node4
"""
# Four modules: conv, relu, conv, sigmoid.
NETWORK = {"source": {"uri": "synth:shapes", "width": 16, "height": 16}, "task": {"kind": "autoencode"},
           "model": {"preset": "partime-cnn", "layers": 2, "features": 4}}
SMALL = program.merged(NETWORK, {"source": {"height": 12}, "model": {"kernel": 5}})


class Plan(program.CliTest):
    def planned(self, *arguments):
        """The [pipeline] table, and what was printed."""
        table = self.folder / "plan.toml"
        outcome = self.succeed("plan", *arguments, "--output", table)
        self.assertTrue(outcome.out.endswith(table.read_text()), outcome)
        return tomllib.loads(table.read_text())["pipeline"], outcome.out

    def test_the_plan_and_why(self):
        """(modules, options, the table's keys, what is said). How plans are chosen: tests/engine/plan."""
        even = [module("a", 2), module("b", 1), module("c", 1), module("d", 1)]
        both = ["cpu:0", "cpu:1"]
        for modules, options, table, *parts in (
                (even, "--devices 2 --fps 100", {"schedule": "partime", "stages": 2, "cut": [2], "devices": both},
                 "n, 4 modules, on 2 devices", "partime, 2 stages, cut [2]", "<- slowest",
                 "142.9 frames a second", "real time HOLDS: a frame every 7.000 ms <= 1/F 10.000 ms"),
                ([module("a", 9), module("b", 9)], "--devices 2 --threads --schedules sequential", {"stages": 1, "threads": [2]}),
                (even, "--schedules any --microbatches 4,8", {"stages": 2}, "other     ")):
            with self.subTest(options):
                found, out = self.planned(write_profile(self.folder, *modules, thread_speedup=[1, 1.5]), *options.split())
                self.assertEqual(found, {**found, **table})
                self.assertEqual("threads" in found, "threads" in table)
                for part in parts:
                    self.assertIn(part, out)

    def test_memory_is_shared_with_samples_to_replay(self):
        path = write_profile(self.folder, *[module(name, 1, weight=100, stash=400) for name in "abcd"], input_bytes=10)
        arguments = (path, "--schedules", "pipedream", "--recompute", "--memory", "2.6e-6", "--fps", "50")
        table, _ = self.planned(*arguments)
        self.assertNotIn("recompute", table)
        results = self.folder / "o.json"
        table, out = self.planned(*arguments, "--replay", "80", "--json", results)
        self.assertTrue(table["recompute"], "80 samples leave no room for the activations")
        replay = tomllib.loads((self.folder / "plan.toml").read_text())["replay"]
        found = json.loads(results.read_text())
        self.assertEqual(replay, {"kind": "reservoir", "size": found["replay"]["size"]})
        self.assertGreaterEqual(replay["size"], 80)
        first = found["plans"][0]["memory"][0]["total_bytes"]  # with 80 of them
        self.assertLessEqual(first + 10 * (replay["size"] - 80), 2600)
        self.assertGreater(first + 10 * (replay["size"] - 79), 2600, "all the room there is")
        self.assertAlmostEqual(found["replay"]["share"], 1 - 50 / found["plans"][0]["frames_a_second"])
        self.assertIn(f"replay    {replay['size']} samples", out)

    def test_a_graph_of_pipedream(self):
        path = self.folder / "graph.txt"
        path.write_text(GRAPH)
        table, out = self.planned(path, "--devices", "2")
        self.assertEqual(table["cut"], [2])  # 3 + 3 | 12
        self.assertIn("3 modules", out)
        self.assertIn("node4 Linear", out)
        frames = self.planned(path, "--devices", "2", "--frames", "10")[1]
        self.assertIn("83.33 frames a second", out)
        self.assertIn("833.3 frames a second", frames)

    def test_run_takes_the_table(self):
        path = write_profile(self.folder, module("a", 1), module("b", 0.1), module("c", 1), module("d", 0.1))
        for schedule in ("partime", "1f1b", "pipedream"):
            table, _ = self.planned(path, "--schedules", schedule)
            report, _ = self.learn({**NETWORK, "pipeline": table}, "--frames", "8")
            self.assertEqual((report["schedule"], report["cut"], report["devices"]),
                             (schedule, table["cut"], ["cpu:0", "cpu:1"]))
            self.assertEqual(report["frames"]["trained"], 8)

    def test_a_config_is_measured(self):
        config = program.write_toml(self.folder / "small.toml", NETWORK)
        table, out = self.planned(config, "--stages", "2",
                                  *program.sets("pipeline.schedule=pb", "correction.kind=local"))
        self.assertEqual((table["schedule"], table["stages"]), ("pb", 2))
        for part in ("4 modules", "heads  "):
            self.assertIn(part, out)

    def test_bad_usage(self):
        path = write_profile(self.folder, module("a", 1), module("b", 2))
        broken = self.folder / "broken.json"
        broken.write_text(path.read_text().replace('"forward_ms": [2, 0]', '"forward_ms": [-2, 0]'))
        typo = self.write({"model": {"layrs": 2}}, "typo.toml")
        self.assert_each_refused((("plan", *arguments), *parts) for arguments, *parts in (
            ([self.folder / "none.json"], "none.json"), ([path, "--devices", "2y2"], "2y2"),
            ([path, "--links", "1,1"], "more links than levels"), ([path, "--schedules", "parttime"], "partime"),
            ([path, "--memory", "-1"], "--memory"), ([path, "--memory", "nan"], "--memory", "not a number"), ([self.folder], "can't be read"), (["/dev/zero"], "can't be read"),
            ([path, "--replay", "5"], "--replay", "how large a sample is"), ([path, "--device", "2"], "--device"), ([typo], "typo.toml", "layers"),
            ([path, "--stages", "3"], "2 modules", "2 devices"), ([broken], "broken.json", "module 1 (b)", "forward", "negative")))


class Profile(program.CliTest):
    @classmethod
    def setUpClass(cls):
        """One profile for all that is asked of it: measuring takes its time."""
        super().setUpClass()
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
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
        self.assertRegex(out, r"(?m)^speed on 1, 2, ... cores: 1.00 [^;]*(; \d or more cores do not speed up a stage, so plans use fewer)?$")

    def test_operators_beside_what_the_core_could_do(self):
        config = program.write_toml(self.folder / "c.toml", {**SMALL, "pipeline": {"stages": 2, "cut": [2]}})
        outcome = self.succeed("profile", config, "--operators")
        self.assertRegex(outcome.out, r"forward 3x12x16 -> 4x12x16 k5 s1 relu +\S+ +\d+\.\d+ +\d+\.\d% +\d+\.\d +\d+%")
        self.assertRegex(outcome.out, r"stage 1\n(.*\n)+ +update by adam ")
        self.assertRegex(outcome.out, r"peak, .*: \d+\.\d GFLOP/s; its sgemm: \d+\.\d GFLOP/s")

    def test_bad_usage(self):
        bad, config = self.write({"model": {"layrs": 2}}, "bad.toml"), self.write(SMALL)
        self.assert_each_refused((("profile", *words), *parts) for words, *parts in (
            ([bad], "bad.toml:2", "layers"), ([self.folder / "none.toml"], "none.toml"),
            ([config, "--sett", "a.b=1"], "--sett"), ([config, "--set", "model.layers=0"], "layers")))
