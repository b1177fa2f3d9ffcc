"""Ranks, the GStreamer element and plug-ins keep what was learned as a plain run does."""

import json
import os
import random
import signal
import time
import unittest

from safetensors.torch import load_file

import keeping
import program
from keeping import EVERY, NEWEST, KeepingTest, figure
from test_gstreamer import ENVIRONMENT as GST_ENVIRONMENT, LOADABLE
from test_plugins import PLUGINS
from test_ranks import ENVIRONMENT, LAUNCH, MPI, processes_under

KILLS = max(2, keeping.KILLS // 20)


@unittest.skipUnless(MPI, "no MPI")
class Ranks(KeepingTest):
    def start(self):
        command = [*LAUNCH, "-n", 2, program.MILLRACE, "run", self.write(self.tables()), "--quiet"]
        return self.spawn(command, ENVIRONMENT)

    def launch(self):
        process = self.start()
        self.wait_for_more(process)
        return process

    def stop_rank(self, process, code=program.DONE):
        os.kill(processes_under(process.pid)[1], signal.SIGTERM)
        return self.finish(process, code)[1]

    def test_a_disk_that_is_away_for_a_while_costs_no_frame_and_at_the_end_one_checkpoint(self):
        process = self.launch()
        learned = self.learned()
        self.break_disk()
        self.read_until(process, f"checkpoint: {self.kept}")
        self.mend_disk()
        self.read_until(process, "checkpoint: written again")
        self.wait_until(lambda: self.learned() > learned, "it does not go on", process)
        self.break_disk()
        self.assert_error_among(self.stop_rank(process, program.FAILED), self.kept)
        self.assert_saved()

    def test_a_rank_that_is_killed_costs_an_interval(self):
        learned = 0
        for rank in range(2):
            process = self.launch()
            self.assertGreater(self.learned(), learned, "it starts from scratch")
            learned = self.learned()
            os.kill(processes_under(process.pid)[rank], signal.SIGKILL)
            process.communicate(timeout=60)
            self.assertNotEqual(process.returncode, program.DONE)
            self.assertGreaterEqual(self.learned(), learned)

    def test_ranks_that_stand_still_for_a_while_go_on(self):
        process = self.launch()
        for name in (signal.SIGSTOP, signal.SIGCONT):
            for rank in processes_under(process.pid).values():
                os.kill(rank, name)
            time.sleep(7 if name == signal.SIGSTOP else 0)  # seconds; a rank is lost after 5 or 6
        learned = self.learned()
        self.wait_until(lambda: self.learned() > learned, "it does not go on", process)
        self.stop_rank(process)
        self.assert_saved()
        figure("ranks that are stopped", "both stopped for 7 s: they continue, and no frame is lost")

    @program.each(0.0, 0.6, 1.2)
    def test_stopped_while_they_load_they_end(self, moment):
        process = self.start()
        self.wait_until(lambda: len(processes_under(process.pid)) == 2, "no ranks", process)
        time.sleep(moment)
        os.kill(processes_under(process.pid)[1], signal.SIGTERM)
        process.communicate(timeout=60)


@unittest.skipUnless(LOADABLE, "a build without GStreamer, or under a sanitizer")
class Element(KeepingTest):
    def launch(self):
        ball = "videotestsrc is-live=true pattern=ball ! video/x-raw,format=RGB,width=32,height=24,framerate=100/1"
        pipeline = f"gst-launch-1.0 -e {ball} ! millrace config={self.write(self.tables())} ! fakesink"
        return self.spawn(pipeline.split(), GST_ENVIRONMENT)

    def test_killed_it_goes_on_from_its_last_checkpoint(self):
        learned, chance = 0, random.Random(3)
        for kill in range(KILLS):
            with self.subTest(kill=kill):
                process = self.launch()
                self.wait_for_more(process)
                time.sleep(chance.uniform(0, 0.3))
                process.kill()
                process.communicate(timeout=60)
                load_file(self.kept / NEWEST)
                self.assertGreater(self.learned(), learned, "it starts from scratch")
                learned = self.learned()
        figure("kill -9 of the GStreamer element", f"{KILLS} kills, {KILLS} resumes, every checkpoint complete")

    def test_the_last_checkpoint_fails_and_the_rest_is_saved(self):
        process = self.launch()
        self.wait_for_more(process)
        self.break_disk()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertNotEqual(process.returncode, 0)
        self.assertIn(str(self.kept), out + err)
        self.assert_saved()


@unittest.skipUnless(PLUGINS.is_dir(), "a build without demos")
class Plugins(KeepingTest):
    def run_with(self, plugin, sink, frames, told):
        """A run with that sink fails, and its one error says so."""
        config = self.write(self.tables(output={"sinks": [sink]}))
        config.write_text(f"plugins = ['{plugin}']\n{config.read_text()}")
        self.assert_refused(program.FAILED, program.call("run", config, "--quiet", "--frames", frames), told)

    def test_a_sink_that_cannot_write_costs_no_other_output(self):
        self.run_with(f"{PLUGINS}/libsink.so", "csv:/dev/full", 20, "/dev/full")
        self.assert_saved()
        self.assertEqual(self.learned(), 20)

    @program.each(("error", "out of paper"), ("other", "unknown"))
    def test_a_sink_that_throws_ends_the_run_and_what_is_intact_is_saved(self, how, told):
        self.run_with(os.environ["FAULTY_SINK"], f"breaks:{how}", 100, told)
        self.assert_accounted(json.loads((self.folder / "report.json").read_text())["frames"])
        self.assertGreaterEqual(self.learned(), EVERY)
        load_file(self.kept / NEWEST)
