"""A run under systemd: READY, WATCHDOG and STOPPING arrive, with what was trained."""

import socket
import subprocess
import unittest
from signal import SIGTERM

import program


@unittest.skipUnless("libsystemd" in subprocess.getoutput(f"ldd {program.MILLRACE}"), "built without libsystemd")
class Service(program.CliTest):

    def setUp(self):
        super().setUp()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.socket.close)
        self.socket.bind(str(self.folder / "notify"))
        self.socket.settimeout(60)

    def hear(self):
        """The next message's lines, as a dict."""
        return dict(line.split("=", 1) for line in self.socket.recv(4096).decode().splitlines())

    def start(self, *options):
        config = self.write(program.bare(program.small(source={"pace": "live", "fps": 50})))
        process = self.ends(program.start("run", config, "--quiet", *options, env={
            "NOTIFY_SOCKET": str(self.folder / "notify"), "WATCHDOG_USEC": "1000000"}))
        self.assertEqual(self.hear()["READY"], "1")
        return process

    def assert_stopping(self):
        while "STOPPING" not in (message := self.hear()):
            self.assertIn("WATCHDOG", message)

    def test_systemd_hears_of_trained_frames_until_it_asks_for_the_end(self):
        process = self.start()
        for _ in range(3):
            message = self.hear()
            self.assertEqual(message["WATCHDOG"], "1")
            self.assertRegex(message["STATUS"], r"^frame \d+ .*loss")
        process.send_signal(SIGTERM)
        self.assert_stopping()
        self.finish(process)

    def test_systemd_hears_of_an_end_that_nobody_asked_for(self):
        process = self.start("--frames", "20")
        self.assert_stopping()
        self.finish(process)
