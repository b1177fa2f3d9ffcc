"""A camera that is killed, comes back larger, freezes and thaws: learning goes on by itself. Video out."""

import json
import os
import signal
import subprocess
import time
import unittest

import program

SERVER = os.environ.get("RTSP_SERVER", str(program.ROOT / "build" / "release" / "tests" / "io" / "rtsp_server"))
PATIENCE = 120  # seconds until a test gives up; the promise itself is measured in tests/io


def serve(*arguments):
    server = subprocess.Popen([SERVER, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return server, int(server.stdout.readline())


def stop(server):
    server.kill()
    server.communicate()


@unittest.skipUnless(os.path.exists(SERVER), "this build has no GStreamer")
class Camera(program.CliTest):

    def learn_from(self, port):
        self.report = self.folder / "report.json"
        config = program.write_toml(self.folder / "camera.toml", {
            "source": {"uri": f"rtsp://127.0.0.1:{port}/ball", "width": 24, "height": 16},
            "model": {"layers": 2, "features": 2, "kernel": 3}, "pipeline": {"stages": 2, "cut": [2]},
            "checkpoint": {"dir": self.folder, "every": 5}})
        return program.start("run", config, "--report", self.report)

    def wait_for(self, process, text):
        """Reads the run's stderr until a line that holds `text`."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            line = process.stderr.readline()
            if text in line:
                return line
            if not line:
                break
        self.fail(f"never told of {text!r}")

    def wait_for_checkpoint(self, after=0.0):
        """Weights that were written after that time: frames are trained."""
        file = self.folder / "checkpoint.safetensors"
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if file.exists() and file.stat().st_mtime > after:
                return
            time.sleep(0.05)
        self.fail("no frame is trained")

    def finish(self, process):
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, program.DONE, err)
        report = json.loads(self.report.read_text())
        self.assert_balanced(report)
        return report

    def test_killed_and_back_with_another_size(self):
        server, port = serve("tcp")
        with self.learn_from(port) as process:
            self.wait_for_checkpoint()
            stop(server)
            self.assertNotIn("@", self.wait_for(process, "source: away"))
            gone = time.time()
            server, _ = serve("tcp", "large", f"port={port}")
            self.addCleanup(stop, server)
            self.wait_for(process, "source: back")
            self.wait_for_checkpoint(after=gone)
            report = self.finish(process)
        self.assertEqual(report["source"]["breaks"], 1)
        self.assertEqual(report["source"]["reconnects"], 1)
        self.assertTrue(report["source"]["connected"])
        self.assertGreater(report["source"]["lost_upstream"], 0)

    def test_frozen_and_thawed(self):
        server, port = serve("tcp")
        self.addCleanup(stop, server)
        with self.learn_from(port) as process:
            self.wait_for_checkpoint()
            server.send_signal(signal.SIGSTOP)
            self.wait_for(process, "source: away")
            server.send_signal(signal.SIGCONT)
            self.wait_for(process, "source: back")
            self.wait_for_checkpoint(after=time.time())
            report = self.finish(process)
        self.assertEqual(report["source"]["reconnects"], 1)

    def test_stopped_while_the_camera_is_away(self):
        server, port = serve("tcp")
        with self.learn_from(port) as process:
            self.wait_for_checkpoint()
            stop(server)
            self.wait_for(process, "source: away")
            report = self.finish(process)
        self.assertFalse(report["source"]["connected"])
        self.assertGreater(report["frames"]["trained"], 0)


class Video(program.CliTest):

    def test_prediction_beside_input_is_a_video(self):
        uri = program.write_frames(self.folder / "frames", program.random_frames(1, 30, height=32, width=48))
        for name in ("out.mkv", "out.mp4"):
            with self.subTest(name):
                video = self.folder / name
                report, _ = self.learn({
                    "source": {"uri": uri, "width": 48, "height": 32}, "output": {"video": video},
                    "model": {"layers": 2, "features": 2, "kernel": 3}, "pipeline": {"stages": 2, "cut": [2]}})
                self.assertEqual(report["video"]["written"] + report["video"]["dropped"], 30)
                told = program.call("inspect", video)
                self.assert_code(program.DONE, told)
                self.assertIn("96x32", told.out)

    def test_a_place_that_cannot_be_written(self):
        uri = program.write_frames(self.folder / "frames", program.random_frames(1, 3))
        config = program.write_toml(self.folder / "bad.toml", {
            "source": {"uri": uri, "width": 24, "height": 16}, "output": {"video": self.folder / "frames" / "00000.png" / "out.mp4"},
            "model": {"layers": 2, "features": 2, "kernel": 3}, "pipeline": {"stages": 2, "cut": [2]}})
        self.assert_refused(program.BAD_USAGE, program.call("run", config, "--quiet"), "output.video", "out.mp4")


if __name__ == "__main__":
    unittest.main()
