"""Hours of what a camera's box meets: nothing grows, and every frame is accounted for."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import unittest
import urllib.request
from pathlib import Path
from statistics import median

import program
from test_faults import figure
from test_live import SERVER, serve, stop

LONG = "MILLRACE_LONG" in os.environ
HOUR = 3600
SECONDS = int(os.environ.get("MILLRACE_SOAK", 4 * HOUR if LONG else 12))
CYCLE = 60 if SECONDS > 600 else 6  # s
SETTLE = 600                        # s until memory has to be flat
RATE = 100                          # frames a second: four times a camera's
WATCH = (b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
         b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")


@unittest.skipUnless(os.path.exists(SERVER), "this build has no GStreamer")
class Soak(program.CliTest):

    def setUp(self):
        super().setUp()
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        self.small_disk = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", self.disk], capture_output=True).returncode == 0
        if self.small_disk:
            self.addCleanup(subprocess.run, ["umount", self.disk])
        self.camera, self.port = serve("tcp", f"rate={RATE}")
        self.addCleanup(lambda: stop(self.camera))
        self.rate, self.samples, self.reloads, self.breaks, self.fills = 0.001, [], 0, 0, 0

    def write_config(self):
        return program.write_toml(self.folder / "soak.toml", {
            "source": {"uri": f"rtsp://127.0.0.1:{self.port}/ball", "width": 48, "height": 32},
            "model": {"layers": 3, "features": 4, "kernel": 3}, "pipeline": {"stages": 2, "cut": [2]},
            "optimizer": {"lr": self.rate}, "monitor": {"policy": "skip"},
            "checkpoint": {"dir": self.disk, "every": 200},
            "output": {"log": self.disk / "log.jsonl", "log_every": 100, "report": self.folder / "report.json"}})

    def state(self):
        with urllib.request.urlopen(self.url + "state", timeout=120) as answer:
            return json.loads(answer.read())

    def begin(self):
        with open(self.folder / "stderr", "w") as err:
            self.process = subprocess.Popen(
                [program.MILLRACE, "run", str(self.write_config()), "--serve", "127.0.0.1:0"], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=err)
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.kill)
        self.wait_until(lambda: "page: " in self.told(), "no page")
        self.url = next(line for line in self.told().splitlines() if line.startswith("page: ")).split()[1]
        self.wait_until(self.is_at_rest, "nothing is trained")

    def told(self):
        return (self.folder / "stderr").read_text()

    def wait_until(self, what, text, patience=300):
        end = time.monotonic() + patience
        while not what():
            self.assertIsNone(self.process.poll(), self.told()[-2000:])
            self.assertLess(time.monotonic(), end, f"{text}: {self.told()[-2000:]}")
            time.sleep(0.2)

    def is_at_rest(self):
        """The camera is there, nobody looks on, the disk takes what it is given."""
        state = self.state()
        return state["stream"]["connected"] and state["stream"]["frames_since"] > RATE and not state["controls"]["trouble"]

    def sample(self):
        state, kernel = self.state(), Path(f"/proc/{self.process.pid}")
        frames = state["frames"]
        self.assertEqual(frames["received"], sum(frames[fate] for fate in ("trained", "dropped", "rejected", "in_flight")))
        status = dict(line.split(":", 1) for line in (kernel / "status").read_text().splitlines())
        held = {"s": round(time.monotonic() - self.began), "KiB": int(status["VmRSS"].split()[0]), "anonymous": int(status["RssAnon"].split()[0]),
                "threads": int(status["Threads"]), "files": len(os.listdir(kernel / "fd")), **frames}
        self.samples.append(held)
        if "MILLRACE_SOAK_LOG" in os.environ:
            with open(os.environ["MILLRACE_SOAK_LOG"], "a") as file:
                file.write(json.dumps(held) + "\n")

    def cycle(self, number):
        with contextlib.ExitStack() as viewers:
            for _ in range(2):  # who never read
                viewer = viewers.enter_context(socket.create_connection(self.url.split("/")[2].split(":"), timeout=10))
                viewer.sendall(WATCH)
            with urllib.request.urlopen(self.url + "picture/prediction", timeout=120) as pictures:
                self.assertTrue(pictures.read(20000))
            self.rate = 0.003 - self.rate
            self.write_config()
            self.process.send_signal(signal.SIGHUP)
            self.reloads += 1
            time.sleep(CYCLE / 6)
            if self.small_disk and number % 5 == 1:
                self.fill_disk()
        stop(self.camera)
        self.breaks += 1
        time.sleep(CYCLE / 12)
        self.camera, _ = serve("tcp", f"port={self.port}", f"rate={RATE}")
        time.sleep(CYCLE / 2)
        self.wait_until(self.is_at_rest, "it does not come back")

    def fill_disk(self):
        ballast = self.disk / "ballast"
        with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        self.wait_until(lambda: self.state()["controls"]["trouble"], "a full disk is not told of")
        ballast.unlink()
        self.wait_until(lambda: not self.state()["controls"]["trouble"], "it does not write again")
        self.fills += 1

    def test_nothing_grows_and_every_frame_is_accounted_for(self):
        self.began = time.monotonic()
        self.begin()
        self.sample()
        while time.monotonic() - self.began < SECONDS:
            self.cycle(self.breaks)
            self.sample()
        self.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.process.wait(timeout=120), program.DONE, self.told()[-2000:])
        report = json.loads((self.folder / "report.json").read_text())
        self.assert_balanced(report)
        self.assertEqual(report["source"]["reconnects"], self.breaks)
        self.assert_flat(report)

    def assert_flat(self, report):
        settled = [held for held in self.samples if held["s"] >= SETTLE] or self.samples[1:]
        for what in ("threads", "files"):
            counts = [held[what] for held in settled]
            self.assertLessEqual(max(counts) - min(counts), 2, f"{what} of idle pools at most: {counts}")
        part = max(1, len(settled) // 5)
        # Its own memory: pages of files, the kernel takes back as it likes.
        first, last = (median(held["anonymous"] for held in some) / 1024 for some in (settled[:part], settled[-part:]))
        long_enough = settled[-1]["s"] > 2 * SETTLE
        memory = f"{first:.1f} to {last:.1f} MiB of its own after the first {SETTLE // 60} min" if long_enough else "too short to tell of memory"
        frames = report["frames"]
        hours = (time.monotonic() - self.began) / HOUR
        figure(f"soak, {hours:.1f} h", f"{hours:.2f} h at {RATE} frames a second: {frames['received']} frames received, "
                       f"{frames['trained']} trained, {frames['dropped']} dropped, {frames['rejected']} rejected; {self.breaks} reconnects, "
                       f"{self.reloads} SIGHUPs, {self.fills} full disks, {3 * self.breaks} viewers; {memory}; "
                       f"{settled[-1]['threads']} threads, {settled[-1]['files']} descriptors")
        if long_enough:
            self.assertLessEqual(last - first, 1, [(held["KiB"], held["anonymous"]) for held in settled])


if __name__ == "__main__":
    unittest.main()
