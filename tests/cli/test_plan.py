"""What schedules cost without a run: `millrace profile` measures each module here, however fast it is, `plan` finds the best cut
for that and writes the table that `run` reads, `simulate` and `schedule` show any as it would run."""

import json
import pathlib
import tempfile
import tomllib

import program


def module(name, forward, weight=0.0, stash=0.0, activation=0.0):
    """A module whose backward takes twice as long as its forward."""
    return {"name": name, "forward_ms": [forward, 0], "input_gradient_ms": [forward, 0],
            "weight_gradient_ms": [forward, 0], "update_ms": [0, 0], "activation_bytes": activation,
            "gradient_bytes": activation, "weight_bytes": weight, "state_bytes": 0, "stash_bytes": stash}


def write_profile(folder, *modules, **more):
    path = folder / "profile.json"
    modules[0]["input_gradient_ms"] = [0, 0]
    path.write_text(json.dumps({"millrace_profile": 1, "network": "n", "source": "s", "device": "d",
                                "modules": modules, **more}))
    return path


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
                (even, "--schedules partime,any --microbatches 4,8", {"stages": 2}, "other     ")):
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

    def test_what_takes_a_while_says_so_and_is_not_simulated(self):
        path = write_profile(self.folder, *[module(name, 1) for name in "abcd"])
        outcome = self.succeed("plan", path, "--devices", "257", "--schedules", "gpipe", "--microbatches", "65536")
        self.assertEqual(outcome.err, "257 devices take a while\n")
        self.assertNotIn("simulated", outcome.out)

    def test_run_takes_the_table(self):
        path = write_profile(self.folder, module("a", 1), module("b", 0.1), module("c", 1), module("d", 0.1))
        for schedule in ("partime", "1f1b", "pipedream"):
            table, _ = self.planned(path, "--schedules", schedule)
            report, _ = self.learn({**NETWORK, "pipeline": table}, "--frames", "8", trained=8)
            self.assertEqual((report["schedule"], report["cut"], report["devices"]),
                             (schedule, table["cut"], ["cpu:0", "cpu:1"]))

    def test_a_config_is_measured(self):
        settings = program.sets("pipeline.schedule=pb", "correction.kind=local")
        table, out = self.planned(self.write(NETWORK), "--stages", "2", *settings)
        self.assertEqual((table["schedule"], table["stages"]), ("pb", 2))
        self.assertIn("4 modules", out)
        self.assertIn("heads  ", out)

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
        out = self.succeed("profile", self.write({**SMALL, "pipeline": {"stages": 2, "cut": [2]}}), "--operators").out
        self.assertRegex(out, r"forward 3x12x16 -> 4x12x16 k5 s1 relu +\S+ +\d+\.\d+ +\d+\.\d% +\d+\.\d +\d+%")
        self.assertRegex(out, r"stage 1\n(.*\n)+ +update by adam ")
        self.assertRegex(out, r"peak, .*: \d+\.\d GFLOP/s; its sgemm: \d+\.\d GFLOP/s")

    def test_bad_usage(self):
        bad, config = self.write({"model": {"layrs": 2}}, "bad.toml"), self.write(SMALL)
        self.assert_each_refused((("profile", *words), *parts) for words, *parts in (
            ([bad], "bad.toml:2", "layers"), ([self.folder / "none.toml"], "none.toml"),
            ([config, "--sett", "a.b=1"], "--sett"), ([config, "--set", "model.layers=0"], "layers")))


class Simulate(program.CliTest):
    def simulated(self, *arguments):
        """The results' JSON, and what was printed."""
        path = self.folder / "out.json"
        outcome = self.succeed("simulate", *arguments, "--json", path)
        return json.loads(path.read_text()), outcome.out

    def test_what_is_simulated_is_told(self):
        """(words, figures of the JSON, what is printed). What else options do: tests/engine/simulate."""
        links, csv = ["partime", "--stages", "2", "--message-bytes", "1e6"], self.folder / "two.csv"
        csv.write_text("0F0,0F1,,,0B0,0B1\n,1F0,1F1,1B0,1B1,\n")  # as PyTorch writes it
        for words, figures, *printed in (
                (["partime", "--stages", "3", "--forward", "1,2,1", "--backward", "2,3,2", "--update", "0.5"],
                 {"period_ms": 5.5, "settled": True, "gradient_age": [4, 2, 0]}, "period       5.5 ms, 181.8 frames a second\n"),
                (["partime", "--stages", "8", "--samples", "10"], {"settled": False}, "not settled"),
                ([*links, "--link-latency", "0.1", "--link-gbps", "8"], {"period_ms": 3 + 2 * 1.1}),  # 1 GB/s, both ways
                ([*links, "--links", "1:0.1"], {"period_ms": 3 + 2 * 1.1}),
                ([*links, "--links", "1:0.1", "--overlap", "transfers"], {"period_ms": 3}),
                (["partime", "--stages", "4", "--cores", "2"], {"period_ms": 6}),
                (["partime", "--stages", "2", "--recompute"], {"period_ms": 4}),
                # Every 3 ms one of the frames that come every 2 ms.
                (["partime", "--stages", "2", "--fps", "500", "--samples", "100"], {"period_ms": 3}, "dropped      48 frames\n"),
                ([csv, "--backward", "1", "--samples", "2"], {"total_ms": 6})):
            with self.subTest(words):
                found, out = self.simulated(*words)
                for name, figure in figures.items():
                    if isinstance(figure, (int, float)):
                        self.assertAlmostEqual(found[name], figure, delta=0.02, msg=name)
                    else:
                        self.assertEqual(found[name], figure, name)
                for part in printed:
                    self.assertIn(part, out)

    def test_a_profile_and_a_cut(self):
        path = write_profile(self.folder, module("a", 1, 10, 3), module("b", 2, 20, 5, 7), module("c", 4, 40, 9), input_bytes=2)
        for words in (["--cut", "2"], ["--stages", "2"]):  # which is where it is balanced
            found, _ = self.simulated("partime", "--profile", path, *words)
            self.assertEqual(found["stages"], 2)
            self.assertAlmostEqual(found["period_ms"], 12)
            self.assertEqual([m["total_bytes"] for m in found["memory"]], [30 + 30 + 8, 40 + 40 + 9])

    def test_trace_and_drawing(self):
        trace, svg = self.folder / "trace.json", self.folder / "line.svg"
        self.simulated("pipedream", "--stages", "2", "--samples", "4", "--trace", trace, "--svg", svg)
        self.assertIn("pipedream, 2 stages", svg.read_text())
        events = json.loads(trace.read_text())["traceEvents"]
        self.assertEqual([e["args"]["name"] for e in events if e["name"] == "thread_name"], ["stage 0", "stage 1"])
        first = next(e for e in events if e["name"] == "F" and e["tid"] == 1)
        self.assertEqual((first["ts"], first["dur"], first["args"]), (1000, 1000, {"stage": 1, "frame": 0, "version": 0}))

    def test_4096_devices(self):
        found, out = self.simulated("gpipe", "--stages", "4096", "--microbatches", "16", "--samples", "48")
        self.assertEqual(len(found["workers"]), 4096)
        self.assertGreater(found["bubble"], 0.9)
        self.assertLess(len(out.splitlines()), 150)

    def test_bad_usage(self):
        profile = write_profile(self.folder, module("a", 1), module("b", 2))
        broken = self.folder / "broken.json"
        broken.write_text("{")
        wrong = [
            ("--stages 0", "--stages"), ("--stages 4097", "--stages"), ("--forward -1", "--forward"),
            ("--forward 1,2,3", "--forward", "3 values", "4 stages"), ("--link-gbps 8", "--link-gbps", "--message-bytes"),
            ("--cut 1", "--cut", "--profile"), (f"--profile {profile} --forward 1", "--profile", "--forward"),
            (f"--profile {profile} --cut 2", "2", "1"), (f"--profile {profile} --cut 1 --stages 3", "--cut", "--stages"),
            (f"--profile {profile} --stages 3", "3"), (f"--profile {self.folder / 'none.json'}", "none.json"),
            (f"--profile {broken}", "broken.json"), ("--replicas 2,1,1,1", "replicated"), ("--devices two", "two"),
            ("--devices 2", "--devices", "4 workers"), ("--links 1 --link-latency 1", "--link"), ("--fps -1", "--fps"),
            ("--overlap some", "--overlap"), ("--contention 0", "--contention"), ("--fps nan", "--fps", "not a number"),
        ]
        self.assert_each_refused([(("simulate", "gpip"), "gpipe"), (("simulate", "gpipe", "--samples", "3"), "3 samples", "4"),
                                  *(((*f"simulate partime {words}".split(),), *parts) for words, *parts in wrong)])

    def test_a_file_that_cannot_be_written(self):
        outcome = program.call("simulate", "partime", "--samples", "30", "--svg", "/proc/x.svg")
        self.assert_refused(program.BAD_USAGE, outcome, "--svg", "x.svg")


class Schedule(program.CliTest):
    """`millrace schedule`: the staircase for people, the CSV for PyTorch."""

    def printed(self, *arguments):
        return self.succeed("schedule", *arguments).out

    def test_staircase_and_its_figures(self):
        """Also which samples fill no minibatch."""
        out = self.printed("gpipe", "--stages", "2", "--samples", "3", "--microbatches", "2")
        self.assertEqual(out.splitlines()[:2], ["stage 0 F0  F1  .   .   B0  B1U ",
                                                "stage 1 .   F0  F1  B0  B1U .   "])
        for line in ("bubble         33.3 %", "gradient age   0 0",
                     "left out       the last 1 of 3 samples, which fill no minibatch of 2"):
            self.assertIn(line, out)
        self.assertNotIn("left out", self.printed("partime", "--stages", "2", "--samples", "6"))

    def test_help_says_what_each_schedule_does(self):
        help_text = program.call("schedule", "--help").out
        for name in ("1f1b", "2bw", "gpipe", "interleaved", "partime", "pb", "pipedream", "sequential", "zb-h1"):
            self.assertRegex(help_text, rf"(?m)^  {name} +\w.{{20,}}$")

    def test_bad_usage(self):
        self.assert_each_refused(((("schedule", "gpip"), "gpipe"), (("schedule", "2bw", "--stages", "8"), "microbatches"),
                                  *((("schedule", "partime", "--stages", stages), "--stages") for stages in (0, 1025, 10000000))))

    def test_many_stages_or_samples_say_that_they_take_a_while(self):
        for stages, samples, said in (("400", "8", "400 stages"), ("2", "5001", "2 stages x 5001 microbatches")):
            outcome = self.succeed("schedule", "1f1b", "--stages", stages, "--microbatches", samples, "--samples", samples,
                                   "--format", "csv")
            self.assertEqual(outcome.err, f"{said} take a while\n")
            self.assertEqual(len(outcome.out.splitlines()), int(stages))
