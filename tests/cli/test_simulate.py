"""Schedules without a run: as text, and run against costs."""

import json

import program
from profiles import module, write_profile


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
        found, _ = self.simulated("partime", "--profile", path, "--cut", "2")
        self.assertEqual(found["stages"], 2)
        self.assertAlmostEqual(found["period_ms"], 12)
        self.assertEqual([m["total_bytes"] for m in found["memory"]], [30 + 30 + 8, 40 + 40 + 9])
        balanced, _ = self.simulated("partime", "--profile", path, "--stages", "2")
        self.assertEqual(balanced["memory"], found["memory"])

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
        (self.folder / "file").write_text("")
        outcome = program.call("simulate", "partime", "--samples", "30", "--svg", self.folder / "file" / "x.svg")
        self.assert_code(program.FAILED, outcome)
        self.assert_one_error(outcome, "x.svg")


class Schedule(program.CliTest):
    """`millrace schedule`: the staircase for people, the CSV for PyTorch."""

    def printed(self, *arguments):
        return self.succeed("schedule", *arguments).out

    def test_staircase(self):
        out = self.printed("gpipe", "--stages", "2", "--samples", "2", "--microbatches", "2")
        self.assertEqual(out.splitlines()[:2], ["stage 0 F0  F1  .   .   B0  B1U ",
                                                "stage 1 .   F0  F1  B0  B1U .   "])
        self.assertIn("bubble         33.3 %", out)
        self.assertIn("gradient age   0 0", out)

    def test_samples_that_fill_no_minibatch_are_named(self):
        out = self.printed("1f1b", "--stages", "2", "--samples", "6")
        self.assertIn("left out       the last 2 of 6 samples, which fill no minibatch of 4", out)
        self.assertNotIn("left out", self.printed("partime", "--stages", "2", "--samples", "6"))

    def test_help_says_what_each_schedule_does(self):
        help_text = program.call("schedule", "--help").out
        for name in ("1f1b", "2bw", "gpipe", "interleaved", "partime", "pb", "pipedream", "sequential", "zb-h1"):
            self.assertRegex(help_text, rf"(?m)^  {name} +\w.{{20,}}$")

    def test_bad_usage(self):
        self.assert_each_refused(((("schedule", "gpip"), "gpipe"), (("schedule", "2bw", "--stages", "8"), "microbatches"),
                                  *((("schedule", "partime", "--stages", stages), "--stages") for stages in (0, 1025, 10000000))))

    def test_many_stages_say_that_they_take_a_while(self):
        outcome = self.succeed("schedule", "1f1b", "--stages", "400", "--microbatches", "8", "--samples", "8", "--format", "csv")
        self.assertEqual(outcome.err, "400 stages take a while\n")
        self.assertEqual(len(outcome.out.splitlines()), 400)
