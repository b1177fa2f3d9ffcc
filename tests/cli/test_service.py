"""A run as systemd sees it, and what is told of frames out of the ordinary."""

import json
import signal
import socket
import subprocess
import unittest

from program import DONE, MILLRACE, CliTest, bare, random_frames, start, write_frames, write_toml

# Small and fast: what is said is looked at, not what is learned.
TABLES = {"source": {"uri": "synth:shapes", "pace": "live", "width": 16, "height": 16, "fps": 50},
          "model": {"layers": 2, "features": 4, "kernel": 3}, "pipeline": {"cut": [2]}}


class Service(CliTest):
    def setUp(self):
        super().setUp()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.socket.close)
        self.name = str(self.folder / "notify")
        self.socket.bind(self.name)
        self.socket.settimeout(60)

    def hear(self):
        """The next word's lines, as a dict."""
        return dict(line.split("=", 1) for line in self.socket.recv(4096).decode().splitlines())

    def start(self, *options, heard=True):
        """`heard`: hear() is to be called; who is not read out waits for it when ten words are under way."""
        config = write_toml(self.folder / "config.toml", bare(TABLES))
        to = {"NOTIFY_SOCKET": self.name, "WATCHDOG_USEC": "1000000"}
        return start("run", config, "--quiet", *options, env=to if heard else {})

    @unittest.skipUnless("libsystemd" in subprocess.getoutput(f"ldd {MILLRACE}"), "built without libsystemd")
    def test_systemd_hears_of_trained_frames_until_it_asks_for_the_end(self):
        with self.start() as process:
            self.assertEqual(self.hear()["READY"], "1")
            for _ in range(3):
                word = self.hear()
                self.assertEqual(word["WATCHDOG"], "1")
                self.assertRegex(word["STATUS"], r"^frame \d+ .*loss")
            process.send_signal(signal.SIGTERM)
            self.assert_stopping()
            process.communicate(timeout=60)
        self.assertEqual(process.returncode, DONE)

    @unittest.skipUnless("libsystemd" in subprocess.getoutput(f"ldd {MILLRACE}"), "built without libsystemd")
    def test_systemd_hears_of_an_end_that_nobody_asked_for(self):
        with self.start("--frames", "20") as process:
            self.assertEqual(self.hear()["READY"], "1")
            self.assert_stopping()
            process.communicate(timeout=60)
        self.assertEqual(process.returncode, DONE)

    def assert_stopping(self):
        while "STOPPING" not in (word := self.hear()):
            self.assertIn("WATCHDOG", word)

    def test_what_cannot_be_foretold_is_told_of(self):
        usual = random_frames(1, 400, 16, 16) // 8 + 64  # as restless as a camera's picture
        usual[380:383] = 255 - usual[380:383]
        report = self.folder / "report.json"
        with self.start("--set", f"source.uri={write_frames(self.folder / 'f', usual)}",
                        "--set", "source.fps=200", "--set", "source.drop=never", "--report", report, heard=False) as process:
            _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, DONE, err)
        novelty = json.loads(report.read_text())["novelty"]
        self.assertEqual(novelty["events"], 1)
        self.assertIn(novelty["marked"], [1, 2, 3])  # the network gets used to it
        self.assertIn("unexpected: since frame 380\n", err)

    def test_an_event_of_the_last_frame_is_told_of(self):
        usual = random_frames(1, 400, 16, 16) // 8 + 64
        usual[399] = 255 - usual[399]
        with self.start("--set", f"source.uri={write_frames(self.folder / 'f', usual)}", "--set", "source.pace=asap",
                        "--set", "pipeline.stages=1", "--set", "pipeline.cut=[]", heard=False) as process:
            _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, DONE, err)
        self.assertIn("unexpected: since frame 399\n", err)


if __name__ == "__main__":
    unittest.main()
