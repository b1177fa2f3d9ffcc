"""SIGHUP: the config is read again, what may change does, and one line says what."""

import json
import os
import signal
import time

from safetensors.torch import load_file

import program
from keeping import NEWEST


class Reload(program.CliTest):
    def start(self, *options, **tables):
        """An endless run that has begun."""
        self.tables = program.bare(program.small(**program.merged({
            "source": {"pace": "live", "drop": "never", "fps": 500.0}, "optimizer": {"lr": 0.01},
            "checkpoint": {"dir": self.folder, "every": 50}, "output": {"report": self.folder / "report.json"}}, tables)))
        self.file = self.write(self.tables)
        return self.start_run(self.file, *options)

    def change(self, process, text=None, **tables):
        """The answer to a SIGHUP after the file has become `text`, or has `tables` in place of its own."""
        self.tables = program.merged(self.tables, tables)
        self.write(self.tables) if text is None else self.file.write_text(text)
        process.send_signal(signal.SIGHUP)
        return self.read_until(process, "config: ")

    def end_run(self, process, report="report.json"):
        self.stop(process)
        return self.report(report)

    def next_checkpoint(self, after):
        """One that was written after `after`, and when."""
        file = self.folder / NEWEST
        self.wait_until(lambda: file.exists() and file.stat().st_mtime_ns > after, "no checkpoint is written")
        return load_file(file), file.stat().st_mtime_ns

    def test_checkpoints_the_learning_rate_and_where_results_go(self):
        process = self.start(checkpoint={"every": 0})
        self.assertFalse((self.folder / NEWEST).exists())
        self.assertEqual(self.change(process, checkpoint={"every": 20}), "checkpoint.every 0 -> 20")
        self.next_checkpoint(0)
        self.assertEqual(self.change(process, optimizer={"lr": 0.0}), "optimizer.lr 0.01 -> 0.0")
        _, written = self.next_checkpoint(time.time_ns())  # the first one may be older than the signal
        first, written = self.next_checkpoint(written)
        second, written = self.next_checkpoint(written)
        self.assertTrue(all(first[name].equal(second[name]) for name in first))
        self.assertEqual(self.change(process, optimizer={"lr": 0.5}), "optimizer.lr 0.0 -> 0.5")
        _, written = self.next_checkpoint(time.time_ns())
        third, _ = self.next_checkpoint(written)
        self.assertFalse(all(first[name].equal(third[name]) for name in first))
        told = self.change(process, output={"report": self.folder / "other.json"})
        self.assertTrue(told.startswith("output.report "), told)
        self.end_run(process, "other.json")
        self.assertFalse((self.folder / "report.json").exists())

    def test_the_report_is_of_the_config_in_force(self):
        log, other = self.folder / "day1.json", self.folder / "day2.json"
        process = self.start(output={"log": log, "log_every": 1})
        told = self.change(process, output={"log": other, "report": log})
        self.assertTrue(told.endswith(f"{log}: is the file of output.report; nothing has changed"), told)
        self.change(process, output={"log": log, "report": "-"}, optimizer={"lr": 0.02})
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        report = json.loads(out)
        self.assertIn("real time", err)  # the summary
        self.assertEqual((report["optimizer"]["lr"], report["optimizer"]["lr_in_force"]), (0.02, 0.02))
        self.assertIn("lr = 0.02", report["run"]["config"])

    def test_a_class_that_a_file_has_by_now_is_none_of_the_runs(self):
        labels, weights = self.folder / "labels.csv", self.folder / "w.safetensors"
        labels.write_text("time,class\n0,a\n1,b\n")
        self.tables = {"source": {"uri": "synth:shapes", "pace": "live", "fps": 100.0, "width": 24, "height": 16},
                       "task": {"kind": "label", "labels": labels}, "output": {"weights": weights}}
        self.file = self.write(self.tables)
        process = self.start_run(self.file)
        labels.write_text(labels.read_text() + "9,c\n")
        self.assertEqual(self.change(process, monitor={"fps": 50.0}), "monitor.fps 0.0 -> 50.0")
        self.stop(process)
        self.succeed("export", weights, "--onnx", self.folder / "w.onnx")

    def test_a_reload_chooses_as_the_start_did(self):
        tables = program.small(source={"width": 0, "height": 0, "pace": "live", "fps": 100.0}, optimizer={"kind": "adam"},
                               output={"report": self.folder / "report.json"})
        self.file = self.write(tables)
        before, _ = self.reported("run", self.file, "--frames", 5)
        process = self.start_run(self.file)
        self.tables = tables
        self.assertEqual(self.change(process), "nothing has changed")
        self.assertEqual(self.end_run(process)["run"]["config"], before["run"]["config"])

    @program.each((None, 0.004, 0.004, "0.001 -> 0.004"), (0.004, None, 0.0015, "0.004 -> 0.001"),
                  (None, 0.001, 0.001, "is set"), (0.001, None, 0.0015, "is no longer set"))
    def test_a_learning_rate_is_that_of_a_run_that_begins_with_it(self, before, after, in_force, told):
        rate = lambda lr: {"warmup": 0} | ({} if lr is None else {"lr": lr})
        tables = program.small(source={"pace": "live", "fps": 100.0}, output={"report": self.folder / "report.json"},
                               task={"kind": "next-frame"}, model={"preset": "auto"})
        self.file = self.write(tables | {"optimizer": rate(before)})
        process = self.start_run(self.file)
        self.tables = tables | {"optimizer": rate(after)}
        self.assertEqual(self.change(process), f"optimizer.lr {told}")
        time.sleep(0.2)
        self.assertAlmostEqual(self.end_run(process)["optimizer"]["lr_in_force"], in_force)

    def test_the_rate_that_is_to_be_held(self):
        process = self.start(monitor={"fps": 100000.0, "policy": "skip"})
        self.read_until(process, "overload: train every: 1 -> ")
        self.assertEqual(self.change(process, monitor={"fps": 0.001}), "monitor.fps 100000.0 -> 0.001")
        while " -> 1: " not in self.read_until(process, "overload: train every: "):
            pass
        report = self.end_run(process)
        self.assertEqual(report["overload"]["train_every"], 1)
        self.assertEqual(report["realtime"]["F"], 0.001)

    def test_a_network_that_would_fill_the_memory_is_not_allocated(self):
        process = self.start(checkpoint={"resume": True})
        self.next_checkpoint(0)
        told = self.change(process, model={"features": 4096, "layers": 4})
        self.assertIn("checkpoint.resume", told)
        peak = next(line for line in open(f"/proc/{process.pid}/status") if line.startswith("VmHWM:"))
        self.assertLess(int(peak.split()[1]), 1 << 20, "KiB")
        self.end_run(process)

    def test_a_config_through_a_fifo_is_read_once_and_does_not_keep_a_run_from_ending(self):
        fifo = self.folder / "config.toml"
        os.mkfifo(fifo)
        process = self.ends(program.start("run", fifo))
        fifo.write_text('[source]\nuri = "synth:shapes"\npace = "live"\n')
        self.read_until(process, "frame ")
        process.send_signal(signal.SIGHUP)
        self.assertIn("can be read only once; nothing has changed", self.read_until(process, "config: "))
        self.stop(process, signal.SIGTERM)

    def test_a_broken_config_leaves_everything_as_it_was_and_what_needs_a_restart_is_named(self):
        process = self.start("--set", "source.height=12", model={"features": 4})
        for text, place in (("[optimizer]\nlr =\n", ":2:"), ("[optimizer]\nlr = -1.0\n", ":2:1: optimizer.lr"),
                            ("[optimiser]\nlr = 0.5\n", ":1:2: unknown table"),
                            ("[optimizer]\nlr = 0.5\n[pipeline]\nstages = 99\n", ":4:1: pipeline.stages")):
            with self.subTest(text):
                told = self.change(process, text)
                self.assertTrue(told.startswith(f"{self.file}{place}"), told)
                self.assertTrue(told.endswith("; nothing has changed"), told)
        self.assertEqual(self.change(process, ""), f"{self.file}: is empty; nothing has changed")
        self.assertIn("output.report: /proc/foo/r.json: ", self.change(process, "[output]\nreport = \"/proc/foo/r.json\"\n"))
        self.file.unlink()
        process.send_signal(signal.SIGHUP)
        self.assertIn("cannot be read", self.read_until(process, "config: "))
        self.assertEqual(self.change(process), "nothing has changed")  # the first config again
        told = self.change(process, source={"width": 32, "height": 20}, model={"features": 5}, optimizer={"lr": 0.02})
        self.assertEqual(told, "optimizer.lr 0.01 -> 0.02; needs a restart: source.width 24 -> 32, "
                               "model.features 4 -> 5")
        self.assertEqual(self.change(process), "nothing has changed; needs a restart: source.width 24 -> 32, "
                                               "model.features 4 -> 5")
        self.end_run(process)
