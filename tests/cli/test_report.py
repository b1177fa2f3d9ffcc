"""What a run leaves: the report's keys and values, the summary, the pictures, and where they go. Every frame is accounted for, and
so is the memory; where results go is checked before anything is learned, so that a typing error costs no night and no file."""

import json
import math
import os
import re
import subprocess
import unittest
from pathlib import Path

from safetensors.torch import load_file, save_file

import program
from keeping import NEWEST

NUMBER, COUNT, TEXT, FLAG = (int, float), int, str, bool
# Keys that every report has. A list has one item a stage.
KEYS = {
    "schedule": TEXT, "stages": COUNT, "devices": [TEXT], "cut": list,
    "frames": {"received": COUNT, "trained": COUNT, "dropped": COUNT, "rejected": COUNT, "in_flight": COUNT},
    "task": {"kind": TEXT, "loss": TEXT, "without_target": COUNT, "minibatch_rejected": COUNT},
    "updates": [COUNT],
    "timing_ms": {"stage": [NUMBER], "T": NUMBER, "T_over_N": NUMBER, "bottleneck": NUMBER, "step_p50": NUMBER,
                  "step_p99": NUMBER, "speedup_K": NUMBER},
    "realtime": {"F": NUMBER, "budget_ms": NUMBER, "holds": FLAG},
    "latency_ms": {"p50": NUMBER, "p99": NUMBER, "max": NUMBER},
    "gradient_age": [COUNT],
    "gradient_age_spread": [list],
    "dead_units": {"dead": [COUNT], "units": [COUNT]},
    "steps": [dict],
    "loss": {"first": NUMBER, "last": NUMBER, "mean": NUMBER},
    "provenance": {"version": TEXT, "compiler": TEXT, "libtorch": TEXT, "cuda": TEXT, "cpu": TEXT, "gpu": TEXT,
                   "threads": COUNT},
}


class Reports(program.CliTest):
    def config(self, cut=(2,), count=30, pipeline={}, **tables):
        uri = program.write_frames(self.folder / f"frames{count}", program.random_frames(1, count))
        return {"source": {"uri": uri, "width": 24, "height": 16}, "model": {"layers": 4, "features": 4, "kernel": 3},
                "pipeline": {"stages": len(cut) + 1, "cut": list(cut), **pipeline}, **tables}

    def assert_typed(self, value, kind, stages, path):
        if isinstance(kind, dict):
            for key, inner in kind.items():
                self.assertIn(key, value, path)
                self.assert_typed(value[key], inner, stages, f"{path}.{key}")
        elif isinstance(kind, list):
            self.assertEqual(len(value), stages, path)
            for item in value:
                self.assert_typed(item, kind[0], stages, path)
        else:
            self.assertIsInstance(value, kind, path)
            self.assertEqual(isinstance(value, bool), kind is FLAG, path)  # Python's bool is an int too

    def assert_consistent(self, report):
        """How the figures are measured: tests/engine/monitor."""
        timing, realtime = report["timing_ms"], report["realtime"]
        total = sum(timing["stage"])
        for figure, expected in ((timing["T"], total), (timing["T_over_N"], total / report["stages"]),
                                 (timing["speedup_K"], total / timing["step_p50"]),
                                 (realtime["budget_ms"], 1000 / realtime["F"])):
            self.assertTrue(math.isclose(figure, expected, rel_tol=1e-6), report)
        self.assertGreaterEqual(timing["bottleneck"], max(timing["stage"]) * 0.9)  # both are medians
        self.assertEqual(realtime["holds"], timing["bottleneck"] <= realtime["budget_ms"], (timing, realtime))
        self.assertGreater(min(timing["stage"]), 0)

    def test_dead_units_are_counted_and_reported(self):
        config = self.config(count=150)
        report, _ = self.learn(config)
        self.assertEqual(report["dead_units"]["units"], [4, 8])
        self.assertLess(sum(report["dead_units"]["dead"]), 12)
        weights = load_file(self.folder / "out.safetensors")
        weights["0.bias"][:] = -100
        save_file(weights, self.folder / "silenced.safetensors")
        config["model"]["weights"] = self.folder / "silenced.safetensors"
        report, outcome = self.learn(config)
        self.assertEqual(report["dead_units"]["dead"][0], 4)
        # Which stage is checked first is chance; stage 1 then sees only the biases of stage 0.
        self.assertRegex(outcome.err, r"units: (4 of 4 in stage 0|\d of 8 in stage 1) are dead")
        self.assertIn('model.norm = "instance"', outcome.err)

    def test_the_first_lines_are_for_who_watches(self):
        tables = self.config(correction={"kind": "auto"})
        tables["source"] |= {"pace": "live", "fps": 25}  # there is time for progress
        config = self.write(tables)
        first, *rest = program.call("run", config).err.splitlines()
        self.assertRegex(first, r"^watching images:.*: 24x16 at \d+ frames/s; what is new is reported here$")
        self.assertRegex(rest[0], r"^frame \d+  [\d.]+ fps")
        self.assertNotRegex("\n".join(rest), "T/N|latency|correction|loss")
        told = program.call("run", config, "--verbose").err
        self.assertTrue(told.startswith(first + "\ncorrection: "), told)
        self.assertRegex(told, r"\nframe \d+ .* T/N .* latency")

    @program.each(("partime", {}, "deep-supervision", 0.8, [2, 0]),
                  ("partime", {"beta1": 0.3}, "deep-supervision", 0.3, [2, 0]),
                  ("pipedream", {"kind": "adamw"}, "inverse-age", 0, [1, 0]),
                  ("sequential", {}, "none", 0.9, [0, 0]),
                  ("gpipe", {}, "none", 0.9, [0, 0]))
    def test_auto_learns_by_gradients_from_downstream_and_says_so(self, schedule, named, correction, beta1, ages):
        """(schedule, what the config names, and what auto makes of it: correction, beta1, ages)"""
        log = self.folder / "log.jsonl"
        log.unlink(missing_ok=True)
        optimizer = {"kind": "adam", "lr": 0.001, **named}
        report, _ = self.learn(self.config(count=32, pipeline={"schedule": schedule}, optimizer=optimizer,
                                           correction={"kind": "auto"}, output={"log": log}))
        self.assertEqual((report["correction"], report["optimizer"]["beta1"], report["gradient_age"]), (correction, beta1, ages))
        self.assertEqual({line["correction"] for line in program.lines_of(log)}, {correction})
        self.assertIn(f"beta1 = {float(beta1)}", report["run"]["config"])
        told = program.call("run", self.folder / "config.toml", "--verbose").err
        said = rf"correction: {correction} \(auto\): .*, {optimizer['kind']}'s beta1 {beta1:g}; where one core"
        self.assertEqual(bool(re.search(said, told)), correction != "none", told)

    def test_auto_adds_small_heads_for_changes_after_a_warm_up(self):
        """(what the config names, and what auto makes of it: correction, the heads' kernel, warm-up, clip, factor on the rate)"""
        config = program.sets("source.uri=synth:shapes?frames=8", "source.width=16", "source.height=16", "model.layers=8",
                              "pipeline.schedule=partime")
        for named, *expected in (((), "deep-supervision", 3, 50, 1, 1.5), (("pipeline.stages=1",), "none", 5, 50, 0, 1),
                                 (("pipeline.stages=5",), "deep-supervision", 3, 50, 0.5, 1.5),
                                 (("correction.kernel=5", "optimizer.warmup=0"), "deep-supervision", 5, 0, 1, 1.5),
                                 (("optimizer.lr=0.001",), "deep-supervision", 3, 50, 1, 1),
                                 (("correction.step=2",), "deep-supervision", 3, 50, 1, 2),
                                 (("optimizer.kind=sgd",), "deep-supervision", 3, 0, 0, 1),
                                 (("optimizer.schedule=cosine",), "deep-supervision", 3, 0, 1, 1.5),
                                 (("correction.kind=none",), "none", 5, 0, 0, 1),
                                 (("task.kind=autoencode",), "deep-supervision", 3, 0, 0, 1)):
            with self.subTest(named=named):
                checked = program.call("check", *config, *program.sets("pipeline.stages=4", *named)).out
                for line in (f"# correction {expected[0]}", f"kernel = {expected[1]}\n", f"warmup = {expected[2]}\n",
                             f"clip = {float(expected[3])}\n", f"step = {float(expected[4])}\n"):
                    self.assertIn(line, re.sub(r"#   corr", "# corr", checked))
        # The last stage has two layers, or it would learn no more than the head before it.
        self.assertLessEqual(self.reported("run", *config, "--set", "pipeline.stages=7")[0]["cut"][-1], 7)

    @program.each(("partime", (2, 4, 6), 3, 0.1, True), ("sequential", (3,), 30, 90000.0, False), ("partime", (), 30, 0.0, None))
    def test_every_key_is_there_and_makes_sense(self, schedule, cut, count, fps, holds):
        """With the verdict on 10 s a frame, of a run that is over at once, too; on 11 microseconds; and on the source's rate."""
        stages = len(cut) + 1
        devices = ["cpu:0"] * stages if stages == 4 else "auto"
        config = self.config(cut, count, {"schedule": schedule, "devices": devices}, monitor={"fps": fps})
        config["model"]["seed"] = 5
        report, _ = self.learn(config)
        self.assert_typed(report, KEYS, stages, "report")
        self.assert_consistent(report)
        if fps:
            verdict = report["realtime"]
            self.assertEqual(verdict, {**verdict, "F": fps, "holds": holds, "judged": True})
        self.assertEqual((report["schedule"], report["stages"], report["cut"]), (schedule, stages, list(cut)))
        if devices != "auto":
            self.assertEqual(report["devices"], devices)
        provenance, run = report["provenance"], report["run"]
        self.assertEqual((provenance["version"], provenance["threads"]), (self.succeed("--version").out.strip(), stages))
        for key in ("compiler", "libtorch", "cpu"):
            self.assertNotEqual(provenance[key], "", key)
        self.assertEqual((run["seed"], run["uri"]), (5, config["source"]["uri"]))
        self.assertGreater(run["duration_s"], 0)
        self.assertTrue(math.isclose(run["fps"] * run["duration_s"], count))
        (again := self.folder / "again.toml").write_text(run["config"])
        self.succeed("check", again)

    @program.each(
        (20, False, "autoencode", 7, 7, 7), (20, False, "next-frame", 7, 8, 7), (5, False, "autoencode", 50, 5, 5),
        (5, False, "autoencode", 0, 5, 5), (4, True, "autoencode", 23, 23, 23),
        (4, True, "next-frame", 23, 31, 23))  # three pairs a pass, none across the seam
    def test_so_many_frames_are_trained_as_are_asked_for(self, count, loop, task, frames, received, trained):
        """Of a stream of so many frames, and of its passes where it is a loop."""
        config = program.merged(self.config(count=count), {"source": {"loop": loop}, "task": {"kind": task}})
        report, _ = self.learn(config, "--frames", frames)
        self.assertEqual(report["frames"], {"received": received, "trained": trained, "dropped": 0,
                                            "rejected": received - trained, "in_flight": 0})

    def test_a_loss_that_is_nan_stays_json(self):
        # A rate that throws the weights out of float's range.
        report, _ = self.learn(self.config(optimizer={"lr": 1000.0, "momentum": 1.0, "weight_decay": 1.0}, count=60))
        self.assertTrue(math.isfinite(report["loss"]["first"]))
        self.assertIsNone(report["loss"]["last"])  # JSON has null, but no nan
        self.assertNotIn("NaN", (self.folder / "report.json").read_text())

    def test_weights_that_give_no_finite_loss_end_the_run(self):
        tables = self.config()
        self.learn(tables)
        weights = load_file(self.folder / "out.safetensors")
        for layer in (4, 6):  # their products overflow with both signs
            weights[f"{layer}.weight"] *= 1e38
        save_file(weights, self.folder / "huge.safetensors")
        tables = program.merged(program.bare(tables), {
            "model": {"weights": self.folder / "huge.safetensors"}, "guard": {"kind": "roll-back"}})
        outcome = program.call("run", self.write(tables))
        self.assert_code(program.FAILED, outcome)
        self.assert_error_among(outcome.err, "guard: the first 4 losses were not finite")
        self.assertNotIn("nan", outcome.out + outcome.err)
        self.assertNotIn("rolled back", outcome.err)

    def test_a_run_that_ends_while_its_loss_is_raised_says_that_it_rolled_back(self):
        tables = self.config(optimizer={"kind": "adam", "lr": 1000.0}, count=9)
        report, outcome = self.learn(program.merged(tables, {"guard": {"kind": "roll-back"}}))
        self.assertEqual((report["guard"]["roll_backs"], report["guard"]["last_frame"]), (1, 8))
        self.assertIn("rolled back to the last good weights", outcome.err)

    def run_with(self, *options, code=program.DONE, **output):
        outcome = program.call("run", self.write(self.config(task={"kind": "autoencode"}, output=output)), *options)
        self.assert_code(code, outcome)
        return outcome

    def test_the_summary(self):
        outcome = self.run_with()
        for part in ("30 received = 30 trained + 0 dropped + 0 rejected", "partime", "T/N", "loss", "real time"):
            self.assertIn(part, outcome.out)
        self.assertNotIn("received", outcome.err)
        self.assertNotIn("the stream sets the pace", outcome.out, "it came as fast as it was taken")

    def test_figures_that_do_not_exist_are_left_out(self):
        # Frames that are all alike, which "mean frame" predicts without an error; and labels of none of them.
        still = program.write_frames(self.folder / "still", program.random_frames(1, 1).repeat(150, axis=0))
        (self.folder / "labels.csv").write_text("frame,class\n100000,0\n")
        labels = {"task": {"kind": "label", "labels": self.folder / "labels.csv"}, "pipeline": {"stages": 1, "cut": []},
                  "model": {"preset": "layers", "layer": [{"type": "flatten"}, {"type": "linear", "out": 1}]}}
        for tables in ({"task": {"kind": "autoencode"}}, labels):
            with self.subTest(tables["task"]["kind"]):
                outcome = self.succeed("run", self.write({**self.config(), "source": {
                    "uri": still, "width": 24, "height": 16, "fps": 100.0, "pace": "live"}, **tables}))
                self.assertNotIn("nan", outcome.out + outcome.err)

    def test_quiet_and_a_report_to_stdout(self):
        self.assertEqual(self.run_with("--quiet"), program.Outcome(program.DONE, "", ""))
        outcome = self.run_with("--quiet", "--report", "/dev/stdout")
        self.assertEqual(json.loads(outcome.out)["frames"]["trained"], 30)

    @program.each("-", "/dev/stdout")
    def test_what_goes_to_stdout_follows_what_was_there(self, out):
        config, told = self.write(self.config(task={"kind": "autoencode"})), self.folder / "told"

        def add(*words, to=">>"):
            subprocess.run(["bash", "-c", f'"$0" "$@" {to} "{told}"', program.MILLRACE, *map(str, words)], check=True,
                           timeout=100, stderr=subprocess.DEVNULL)
            return told.read_text()

        told.write_text("before\n")
        before, report = add("run", config, "--quiet", "--report", out).split("\n", 1)
        self.assertEqual((before, json.loads(report)["frames"]["trained"]), ("before", 30))
        self.assertTrue(add("run", config, "--quiet", "--trace", out).startswith(f"before\n{report}"))
        log = add("run", config, "--set", f"output.log={out}", "--set", "output.log_every=1", to=">").splitlines()
        self.assertEqual([json.loads(line)["frame"] for line in log], list(range(30)), "the summary is elsewhere")
        self.assertRegex(add("simulate", "partime", "--json", out), r'(?s)^\{"frame":0,.*\ntotal .*"period_ms"')

    def test_a_file_in_the_home_folder_and_one_whose_name_is_not_utf_8(self):
        odd, home = os.fsdecode(os.fsencode(self.folder) + b"/\xc3\xff.json"), {"HOME": str(self.folder)}
        config = self.write(self.config(count=3, task={"kind": "autoencode"}, output={"log": "~/log.jsonl"}))
        self.succeed("run", config, "--report", odd, "--trace=~/trace.json", "--set", "output.weights=~/w.safetensors",
                     env=home)
        left = {path.name for path in self.folder.iterdir()}
        self.assertEqual(left, {"config.toml", "frames3", "log.jsonl", "trace.json", "w.safetensors", Path(odd).name})

    def test_report_option_wins_and_files_are_replaced_whole(self):
        for _ in range(2):
            self.run_with("--quiet", "--report", self.folder / "a.json", report=self.folder / "b.json")
        self.report("a.json")
        left = sorted(path.name for path in self.folder.iterdir())
        self.assertEqual(left, ["a.json", "config.toml", "frames30"])  # no temporary file stays

    def test_one_that_cannot_be_written_costs_no_other(self):
        outcome = self.run_with("--quiet", report="/dev/full", loss_plot=self.folder / "loss.png", prediction="/dev/full",
                                weights=self.folder / "out.safetensors", code=program.FAILED)
        self.assert_refused(program.FAILED, outcome, "/dev/full")
        self.assertEqual(outcome.err.count("/dev/full"), 2, "every failure is reported")
        for name in ("out.safetensors", "loss.png"):
            self.assertTrue((self.folder / name).exists(), name)


class Compare(program.CliTest):
    """`millrace compare`: reports of several runs side by side."""

    def test_two_runs_that_differ_in_one_key(self):
        first, second = (self.folder / f"{rate}.json" for rate in (0.001, 0.01))
        for path in (first, second):
            self.succeed("run", "--quiet", "--report", path, *program.settings(program.small(
                "synth:shapes?frames=30", optimizer={"lr": float(path.stem)},
                output={"log": path.with_suffix(".jsonl"), "log_every": 1})))
        logs = f"{self.folder}/0.001.jsonl,{self.folder}/0.01.jsonl"
        plain = program.call("compare", first, second, "--plot", self.folder / "own.png")  # the reports name their logs
        outcome = program.call("compare", first, second, "--logs", logs, "--plot", self.folder / "loss.png")
        self.assertEqual((plain.code, plain.out.replace("own.png", "loss.png")), (program.DONE, outcome.out))
        self.assert_code(program.DONE, outcome)
        lines = outcome.out.splitlines()
        self.assertEqual(lines[0].split(), [str(first), str(second)])
        self.assertIn(["optimizer.lr", "0.001", "0.01"], [line.split() for line in lines])
        self.assertIn(["frames", "trained", "30", "30"], [line.split() for line in lines])
        self.assertRegex(outcome.out, r"\nloss, last 100 +[\d.e-]+ +[\d.e-]+ \(x [\d.]+\)\n")
        self.assertNotRegex(outcome.out, "\nseed|\naccuracy")  # the same in both; of no run
        (older := self.folder / "older.json").write_text('{"frames": {"trained": 3}, "timing_ms": {}}')
        self.assertRegex(self.succeed("compare", first, older).out, r"\nT, ms +[\d.]+ +-\n")
        self.assertGreater(program.png_size(self.folder / "loss.png")[0], 100)

    def test_bad_usage(self):
        none, empty, broken = (self.folder / f"{name}.json" for name in ("none", "empty", "broken"))
        empty.write_text("{}")
        broken.write_text("[1, 2")
        self.assert_each_refused((("compare", path), f"{path}: ", part) for path, part in (
            (none, ""), (empty, "no report"), (broken, "")))
        self.assert_code(program.BAD_USAGE, program.call("compare"))


class Places(program.CliTest):
    def refused(self, *parts, uri="synth:shapes?frames=3", options=(), **tables):
        """Both `check` and `run` refuse it, before a frame is learned from."""
        file = self.write(program.small(uri, **tables))
        for outcome in program.call_all([("check", file), ("run", file, *options)][bool(options):]):
            self.assert_refused(program.BAD_USAGE, outcome, *parts)

    def test_where_nothing_can_be_written(self):
        (self.folder / "file").write_text("no folder")
        (self.folder / "folder.png").mkdir()
        for key, ending in (("report", ".json"), ("weights", ".safetensors"), ("loss_plot", ".png"), ("prediction", ".png"),
                            ("log", ""), ("video", ".mp4")):
            for path in (f"/proc/foo/file{ending}", self.folder / "file" / f"out{ending}"):
                with self.subTest(key=key, path=path):
                    self.refused(f"output.{key}", path, output={key: path})
        (self.folder / "loop").symlink_to("loop")
        for path in ("x" * 300, "x" * 250, f"{'x' * 300}/file", "loop"):
            self.refused("output.report", path, output={"report": self.folder / path})
        (self.folder / "loop").unlink()
        for key in ("report", "loss_plot", "prediction", "log"):
            self.refused(f"output.{key}", "folder.png", output={key: self.folder / "folder.png"})
        self.refused("novelty.snapshots", "/proc/foo", novelty={"snapshots": "/proc/foo"})
        self.refused("checkpoint.dir", "/proc/foo", checkpoint={"dir": "/proc/foo"})
        self.assertEqual(sorted(os.listdir(self.folder)), ["config.toml", "file", "folder.png"])

    @program.each(("prediction", "p.gif", "FILE.png"), ("loss_plot", "l.jpg", "FILE.png"),
                  ("video", "v.avi", "FILE.mp4"), ("weights", "w.pt", "FILE.safetensors"),
                  ("weights", "w.TOML", "FILE.safetensors"), ("weights", "w.csv", "FILE.safetensors"),
                  ("report", "prev.safetensors", "FILE.json"), ("report", "r.png", "FILE.json"),
                  ("log", "l.toml", "FILE.jsonl"), ("log", "l.mp4", "FILE.jsonl"),
                  ("video", "rtsp://127.0.0.1:99999/x", "65535"),
                  ("video", "rtsp://0.0.0.0:8554/x", "rtsp://USER:PASSWORD@0.0.0.0"))
    def test_endings_of_other_formats(self, key, path, part):
        self.refused(f"output.{key}", part, output={key: path if "://" in path else self.folder / path})

    def test_an_option_has_its_format_too(self):
        self.refused("--trace", "FILE.json", options=("--trace", self.folder / "t.safetensors"))
        self.assert_each_refused(((*words, option, name), f"{option}: {name}: has the") for *words, option, name in (
            ("profile", "--json", "p.toml"), ("plan", "none.json", "--json", "p.png"),
            ("plan", "none.json", "--output", "p.json"), ("simulate", "partime", "--svg", "s.png"),
            ("export", "w.safetensors", "--onnx", "n.pt"), ("compare", "none.json", "--plot", "p.jpg")))

    def test_no_output_replaces_an_input(self):
        video = self.folder / "clip.mp4"
        video.write_bytes(bytes(100))
        os.link(video, self.folder / "hard.mp4")
        (self.folder / "soft.mp4").symlink_to(video)
        for name in ("clip.mp4", "hard.mp4", "soft.mp4", f"../{self.folder.name}/clip.mp4"):
            for key in ("video", "log"):
                with self.subTest(name=name, key=key):
                    self.refused(f"output.{key}", "is the file of source.uri", uri=str(video), output={key: self.folder / name})
        uri = program.write_frames(self.folder / "frames", program.random_frames(seed=1, count=2, channels=1))
        picture = sorted((self.folder / "frames").iterdir())[1]
        self.refused("output.prediction", "is a picture of source.uri", uri=uri, output={"prediction": picture})
        folder, scenes = picture.parent, self.folder / "scenes"
        scenes.mkdir()
        (scenes / "day").symlink_to(folder)
        for key, tables in (("task.masks", {"task": {"kind": "mask", "loss": "cross-entropy", "masks": folder}}),
                            ("task.stream", {"task": {"kind": "stream", "stream": uri}}),
                            ("source.uris", {"source": {"uris": [uri]}}),
                            ("source.uri", {"source": {"uri": f"images:{scenes}"}})):
            for output in ("loss_plot", "report", "log"):
                with self.subTest(key=key, output=output):
                    self.refused(f"output.{output}", f"is a picture of {key}", output={output: picture}, **tables)
        config = self.folder / "config.toml"
        self.refused("output.report", "is the file of the config", options=("--report", config))
        self.refused("--trace", "is the file of the config", options=("--trace", config))
        self.refused("/proc/nowhere/trace.json", options=("--trace", "/proc/nowhere/trace.json"))
        self.assertEqual(video.read_bytes(), bytes(100))

    def test_no_command_replaces_what_it_reads(self):
        self.learn(program.small("synth:shapes?frames=3"))
        config, report, weights = (self.folder / name for name in ("config.toml", "report.json", "out.safetensors"))
        before = [file.read_bytes() for file in (config, report, weights)]
        self.assert_each_refused((words, words[-1]) for words in (
            ("evaluate", weights, "synth:shapes?frames=3", "--report", weights), ("export", weights, "--onnx", weights),
            ("profile", config, "--json", config), ("plan", config, "--json", config), ("compare", report, "--plot", report),
            ("simulate", "partime", "--profile", report, "--svg", report)))
        self.assertEqual([file.read_bytes() for file in (config, report, weights)], before)

    def test_each_output_is_a_file_of_its_own(self):
        self.refused("output.prediction", "is the file of output.loss_plot", output={"loss_plot": "-", "prediction": "-"})
        one = self.folder / "one"
        self.refused("output.weights", "is the file of output.report", output={"weights": one, "report": one})
        (self.folder / "dangling").symlink_to(one)
        self.refused("output.weights", "is the file of output.report",
                     output={"weights": one, "report": self.folder / "dangling"})
        self.refused("output.weights", "is the file of checkpoint.dir", checkpoint={"dir": self.folder},
                     output={"weights": self.folder / NEWEST})
        nowhere = {"report": "/dev/null", "weights": "/dev/null"}
        self.learn(program.small("synth:shapes?frames=3", output={**nowhere, "weights": one}), "--set", "output.log=/dev/null")
        # Going on where an earlier run ended is no mistake.
        self.learn(program.small("synth:shapes?frames=3", model={"weights": one}, output={"weights": one}))

    @program.each("out.mkv", "out.mp4")
    def test_prediction_beside_input_is_a_video(self, name):
        uri = program.write_frames(self.folder / "frames", program.random_frames(1, 30, height=32, width=48))
        report, _ = self.learn(program.small(uri, source={"width": 48, "height": 32}, output={"video": self.folder / name}))
        self.assertEqual(report["video"]["written"] + report["video"]["dropped"], 30)
        self.assertIn("96x32", self.succeed("inspect", self.folder / name).out)

    def test_without_standard_streams_no_file_takes_their_place(self):
        tables = program.small("synth:shapes?frames=60", source={"pace": "live", "fps": 10.0},
                               checkpoint={"dir": self.folder / "kept", "every": 1},
                               output={"log": self.folder / "log.jsonl", "log_every": 1})
        done = subprocess.run(["bash", "-c", 'exec "$0" run "$1" <&- >&- 2>&-', program.MILLRACE, self.write(tables)], timeout=120)
        self.assertEqual(done.returncode, program.DONE)
        lines = (self.folder / "log.jsonl").read_text().splitlines()
        self.assertEqual([line for line in lines if not line.startswith('{"frame"')], [])
        load_file(self.folder / "kept" / NEWEST)


class Memory(program.CliTest):
    @unittest.skipIf(Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists(), "a GPU is here")
    def test_a_run_on_cores_loads_no_cuda_and_no_codecs(self):
        run = self.start_run(self.write(program.small()), "--set", "source.pace=live")
        maps = Path(f"/proc/{run.pid}/maps").read_text()
        self.stop(run)
        libraries = {Path(line.split()[-1]).name for line in maps.splitlines() if ".so" in line}
        self.assertIn("libtorch_cpu.so", libraries)
        # LibTorch's wheel links libcudart and libcupti, a megabyte each, to its part for cores.
        unused = [name for name in libraries if re.match(r"lib(.*cu|.*cuda|nccl|nv)|libavcodec|libopencv_imgcodecs", name)
                  and not re.match("libcudart|libcupti|libicu", name)]
        self.assertEqual(unused, [])

    @program.each("partime", "pb", "pipedream")
    def test_the_report_accounts_for_what_more_stages_take(self, schedule):
        accounted, peaks, activations = [], [], []
        for stages in (1, 4):
            cut = list(range(2, 2 * stages, 2))
            config = self.write(program.bare(program.small(
                source={"width": 128, "height": 96}, model={"layers": 8, "features": 32},
                pipeline={"stages": stages, "cut": cut, "schedule": schedule})))
            report, _ = self.reported("run", config, "--frames", 8, "--quiet", env={})
            accounted.append(sum(report["memory_bytes"]["total"]))
            peaks.append(report["process"]["peak_bytes"])
            activations.append(sum(report["memory_bytes"]["activations_peak"]))
        # What crosses a cut has one copy, at the cut.
        if schedule == "partime":
            self.assertLess(activations[1], activations[0] - 2 * 4 * 32 * 128 * 96)
        self.assertGreater((accounted[1] - accounted[0]) / (peaks[1] - peaks[0]), 0.9)
        foretold = re.search(r"memory: ([\d.]+) MiB", self.succeed("check", config).out)
        self.assertLess(abs(float(foretold[1]) * 2**20 / accounted[1] - 1), 0.1)
