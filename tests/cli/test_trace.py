"""`run --trace`: what each worker did and when, as the schedule has it."""

import json
import os
import re
import unittest

import program

FRAMES = 12


def text(event, with_version):
    """An event as `millrace schedule` writes its action."""
    args = event["args"]
    gradient = f"({args['gradient']})" if args.get("gradient", args["frame"]) != args["frame"] else ""
    version = f"^{args['version']}" if with_version and event["name"] == "F" else ""
    return f"{args['stage']}{event['name']}{args['frame']}{version}{gradient}"


class Trace(program.CliTest):
    def config(self, name, stages, **pipeline):
        uri = program.write_frames(self.folder / "frames", program.random_frames(1, FRAMES))
        return {"source": {"uri": uri, "width": 24, "height": 16}, **program.PLAIN,
                "model": {"preset": "partime-cnn", "layers": 3, "features": 2, "kernel": 3},
                "pipeline": {"schedule": name, "stages": stages, "cut": list(range(1, stages)), **pipeline}}

    def traced(self, name, stages, *options, **pipeline):
        """A run's events, and its report."""
        file = self.folder / "trace.json"
        report, _ = self.learn(self.config(name, stages, **pipeline), "--trace", file, *options)
        return json.loads(file.read_text())["traceEvents"], report

    @program.each(("partime", 3, {}), ("interleaved", 4, {"microbatches": 4}),
                  ("gpipe", 3, {"microbatches": 4, "recompute": True}))
    def test_each_action_of_each_stage_is_there_once_and_none_overlap(self, name, stages, pipeline):
        events, report = self.traced(name, stages, **pipeline)
        counted = [event["name"] for event in events if event["ph"] == "C"]
        self.assertEqual(set(counted), {"frames waiting", "frames dropped", "latency, ms"})
        self.assertEqual(counted.count("latency, ms"), report["frames"]["trained"])
        self.assertFalse([event for event in events if event.get("cat") == "operator"])
        done = [event for event in events if event["ph"] == "X" and event["cat"] != "waiting"]
        for worker in {event["tid"] for event in done}:
            times = [(event["ts"], event["ts"] + event["dur"]) for event in done if event["tid"] == worker]
            self.assertTrue(all(a[1] <= b[0] for a, b in zip(times, times[1:])), times)
        forwards = {(event["args"]["stage"], event["args"]["frame"]) for event in done if event["cat"] == "forward"}
        self.assertEqual(len(forwards), stages * report["frames"]["trained"])
        updates = [sum(e["args"]["stage"] == s for e in done if e["cat"] == "update") for s in range(stages)]
        self.assertEqual(updates, report["updates"])
        self.assertTrue(all(event["args"]["version"] >= 0 for event in done))

    def test_operators_lie_within_their_actions(self):
        events, _ = self.traced("partime", 2, "--trace-operators")
        operators = [event for event in events if event.get("cat") == "operator"]
        actions = [event for event in events if event.get("cat") in ("forward", "backward", "update")]
        names = {event["name"] for event in operators}
        self.assertIn("forward 3x16x24 -> 2x16x24 k3 s1", names)
        self.assertIn("update by sgd", names)
        for operator in operators:
            around = [action for action in actions if action["tid"] == operator["tid"]
                      and action["ts"] <= operator["ts"] + 1e-3
                      and operator["ts"] + operator["dur"] <= action["ts"] + action["dur"] + 1e-3]
            self.assertEqual(len(around), 1, operator)
            self.assertEqual(around[0]["args"]["frame"], operator["args"]["frame"])
        forwards = [event for event in operators if event["name"].startswith("forward 3x16x24")]
        self.assertEqual(len(forwards), FRAMES)

    def test_ctrl_c_still_writes_it(self):
        file = self.folder / "trace.json"
        config = self.write(program.small(source={"pace": "live"}, output={"report": self.folder / "report.json"}))
        self.stop(self.start_run(config, "--trace", file))
        trained = self.report()["frames"]["trained"]
        events = json.loads(file.read_text())["traceEvents"]
        self.assertEqual(sum(event.get("cat") == "update" and event["tid"] == 1 for event in events), trained)

    @unittest.skipUnless(os.path.exists(os.environ.get("PROFILER", "")), "built without NVTX's headers")
    def test_a_profiler_sees_a_range_around_each_action(self):
        config = program.write_toml(self.folder / "config.toml", self.config("pipedream", 2))
        ranges, file = self.folder / "ranges", self.folder / "trace.json"
        self.succeed("run", config, "--quiet", "--trace", file,
                     env={"NVTX_INJECTION64_PATH": os.environ["PROFILER"], "RANGES_FILE": str(ranges)})
        first, *lines = ranges.read_text().splitlines()
        self.assertEqual(first, "domain millrace")
        threads = {}
        for line in lines:
            threads.setdefault(line.split()[0], []).append(line.split()[1:])
        events = json.loads(file.read_text())["traceEvents"]
        for told in threads.values():
            self.assertTrue(all(line == ["pop"] for line in told[1::2]), told)
            names = [line[1] for line in told[::2]]
            worker = int(names[0][0])
            done = [event for event in events if event["ph"] == "X" and event["tid"] == worker]
            done = [text(event, "^" in "".join(names)) for event in done if event["name"] != "wait"]
            # The end of the stream shows in an action on a sample that does not come.
            self.assertEqual([name for name in names if int(re.match(r"\d[A-Z](\d+)", name)[1]) < FRAMES], done)
        self.assertEqual(len(threads), 2)
