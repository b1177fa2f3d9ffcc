"""Ranks, the GStreamer element, replay and plug-ins keep what was learned as a plain run does."""

import json
import os
import random
import signal
import subprocess
import time
import unittest

from safetensors.torch import load_file

import program
import test_faults
from test_faults import EVERY, NEWEST, figure, frames_of
from test_gstreamer import LOADABLE, PLUGINS as ELEMENTS
from test_plugins import PLUGINS
from test_ranks import ENVIRONMENT, LAUNCH, MPIRUN, processes_under

KILLS = max(2, test_faults.KILLS // 20)


class Beside(program.CliTest):
    """A run of some kind that keeps checkpoints in a folder which may go away."""

    def setUp(self):
        super().setUp()
        self.kept = self.folder / "kept"
        self.report, self.weights = self.folder / "report.json", self.folder / "out.safetensors"

    def write_config(self, **tables):
        return program.write_toml(self.folder / "config.toml", program.bare({
            "source": {"uri": "synth:shapes", "width": 24, "height": 16, "pace": "live", "fps": 100.0},
            "model": {"layers": 3, "features": 4, "kernel": 3}, "pipeline": {"stages": 2, "cut": [2]},
            "checkpoint": {"dir": self.kept, "every": EVERY, "resume": True},
            "output": {"weights": self.weights, "report": self.report}, **tables}))

    def start(self, command, env=None):
        process = subprocess.Popen(list(map(str, command)), env=env, text=True, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(self.end, process)
        return process

    def learned(self):
        return frames_of(self.kept / NEWEST) if (self.kept / NEWEST).exists() else 0

    def wait_for_more(self, process):
        before = self.learned()
        self.wait_until(lambda: self.learned() > before + EVERY, "no checkpoint is written", process)

    def read_to(self, stream, text):
        for line in iter(stream.readline, ""):
            if text in line:
                return
        self.fail(f"never told of {text!r}")

    def break_disk(self):
        self.kept.rename(self.folder / "aside")
        self.kept.write_text("no folder")  # as root, too, nothing can be written there

    def mend_disk(self):
        self.kept.unlink()
        (self.folder / "aside").rename(self.kept)

    def assert_saved(self):
        self.assert_balanced(json.loads(self.report.read_text()))
        load_file(self.weights)


@unittest.skipUnless(MPIRUN and (program.Path(program.MILLRACE).parent / "libmillrace_mpi.so").exists(), "no MPI")
class Ranks(Beside):

    def launch(self):
        process = self.start([*LAUNCH, "-n", 2, program.MILLRACE, "run", self.write_config(), "--quiet"], ENVIRONMENT)
        self.wait_for_more(process)
        return process

    def stop(self, process):
        os.kill(processes_under(process.pid)[1], signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        return err

    def test_a_disk_that_takes_nothing_for_a_while_costs_no_frame(self):
        process = self.launch()
        learned = self.learned()
        self.break_disk()
        self.read_to(process.stderr, f"checkpoint: {self.kept}")
        self.mend_disk()
        self.read_to(process.stderr, "checkpoint: written again")
        err = self.stop(process)
        self.assertEqual(process.returncode, program.DONE, err)
        self.assertGreater(self.learned(), learned)
        self.assert_saved()

    def test_the_last_checkpoint_fails_and_the_rest_is_saved(self):
        process = self.launch()
        self.break_disk()
        err = self.stop(process)
        self.assertEqual(process.returncode, program.FAILED, err)
        errors = [line for line in err.splitlines() if line.startswith("millrace: error: ")]
        self.assertEqual(len(errors), 1, err)
        self.assertIn(str(self.kept), errors[0])
        self.assert_saved()

    def test_a_rank_that_is_killed_costs_an_interval(self):
        learned = 0
        for rank in range(2):
            process = self.launch()
            self.assertGreater(self.learned(), learned, "it does not go on from what it had learned")
            learned = self.learned()
            os.kill(processes_under(process.pid)[rank], signal.SIGKILL)
            process.communicate(timeout=60)
            self.assertNotEqual(process.returncode, program.DONE)
            self.assertGreaterEqual(self.learned(), learned)

    def test_stopped_while_they_load_they_end(self):
        for moment in (0.0, 0.6, 1.2):
            with self.subTest(moment=moment):
                process = self.start([*LAUNCH, "-n", 2, program.MILLRACE, "run", self.write_config(), "--quiet"], ENVIRONMENT)
                self.wait_until(lambda: len(processes_under(process.pid)) == 2, "no ranks", process)
                time.sleep(moment)
                self.stop(process)


@unittest.skipUnless(LOADABLE, "a build without GStreamer, or under a sanitizer")
class Element(Beside):

    def launch(self, frames=-1):
        ball = f"videotestsrc is-live=true pattern=ball num-buffers={frames} ! video/x-raw,format=RGB,width=32,height=24,framerate=100/1"
        pipeline = f"gst-launch-1.0 -e {ball} ! millrace config={self.write_config()} ! fakesink"
        return self.start(pipeline.split(), {**os.environ, "GST_PLUGIN_PATH": str(ELEMENTS), "GST_REGISTRY": str(ELEMENTS / "registry.bin")})

    def test_killed_it_goes_on_from_its_last_checkpoint(self):
        chance, learned = random.Random(3), 0
        for kill in range(KILLS):
            with self.subTest(kill=kill):
                process = self.launch()
                self.wait_for_more(process)
                time.sleep(chance.uniform(0, 0.3))
                process.kill()
                process.communicate(timeout=60)
                load_file(self.kept / NEWEST)
                self.assertGreater(self.learned(), learned)
                learned = self.learned()
        figure("kill -9 of the GStreamer element", f"{KILLS} kills, {KILLS} resumes, every checkpoint whole")

    def test_the_last_checkpoint_fails_and_the_rest_is_saved(self):
        process = self.launch()
        self.wait_for_more(process)
        self.break_disk()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertNotEqual(process.returncode, 0)
        self.assertIn(str(self.kept), out + err)
        self.assert_saved()


class Replay(Beside):

    REPLAY = {"replay": {"kind": "reservoir", "size": 16, "share": 0.5}}

    def launch(self, *options):
        process = self.start([program.MILLRACE, "run", self.write_config(**self.REPLAY), "--quiet", *options])
        self.wait_for_more(process)
        return process

    def test_killed_it_goes_on_and_counts_fresh_frames_alone(self):
        chance, learned = random.Random(4), 0
        for kill in range(KILLS):
            with self.subTest(kill=kill):
                process = self.launch()
                time.sleep(chance.uniform(0, 0.3))
                process.kill()
                _, err = process.communicate(timeout=60)
                self.assertEqual(err, "", "a checkpoint was damaged")
                self.assertGreater(self.learned(), learned)
                learned = self.learned()
        figure("kill -9 with replay", f"{KILLS} kills, {KILLS} resumes, every checkpoint whole")

    def test_stopped_while_the_disk_takes_nothing_it_saves_the_rest(self):
        process = self.launch()
        self.break_disk()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, program.FAILED, err)
        self.assertEqual(len([line for line in err.splitlines() if line.startswith("millrace: error: ")]), 1, err)
        self.assert_saved()


@unittest.skipUnless(PLUGINS.is_dir(), "a build without demos")
class Plugins(Beside):

    def test_a_sink_that_cannot_write_costs_no_other_output(self):
        config = self.write_config(output={"weights": self.weights, "report": self.report, "sinks": ["csv:/dev/full"]})
        config.write_text(f"plugins = ['{PLUGINS}/libsink.so']\n{config.read_text()}")
        outcome = program.call("run", config, "--quiet", "--frames", 20)
        self.assert_code(program.FAILED, outcome)
        self.assert_one_error(outcome, "/dev/full")
        self.assert_saved()
        self.assertEqual(self.learned(), 20)

    def test_one_that_breaks_ends_the_run_and_what_is_intact_is_saved(self):
        for how, told in (("error", "out of paper"), ("other", "unknown")):
            with self.subTest(how=how):
                config = self.write_config(output={"weights": self.weights, "report": self.report, "sinks": [f"breaks:{how}"]})
                config.write_text(f"plugins = ['{os.environ['FAULTY_SINK']}']\n{config.read_text()}")
                outcome = program.call("run", config, "--quiet", "--frames", 100)
                self.assert_code(program.FAILED, outcome)
                self.assert_one_error(outcome, told)
                frames = json.loads(self.report.read_text())["frames"]
                self.assertEqual(frames["received"], sum(frames[fate] for fate in ("trained", "dropped", "rejected", "in_flight")))
                self.assertGreaterEqual(self.learned(), EVERY)
                load_file(self.kept / NEWEST)


if __name__ == "__main__":
    unittest.main()
