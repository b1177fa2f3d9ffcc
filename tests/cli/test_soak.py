"""Hours of what happens to a camera's box: nothing grows, and every frame is accounted for."""

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
from keeping import LONG, MODEL, figure
from servers import Camera, Page, needs_rtsp

HOUR = 3600
SECONDS = int(os.environ.get("MILLRACE_SOAK", 4 * HOUR if LONG else 12))
CYCLE = 60 if SECONDS > 600 else 6  # s
SETTLE = 600                        # s until memory must be flat
RATE = 100                          # frames a second: four times a camera's
WATCH = (b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
         b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")


@needs_rtsp
class Soak(program.CliTest):

    def setUp(self):
        super().setUp()
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        self.small_disk = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", self.disk], capture_output=True).returncode == 0
        if self.small_disk:
            self.addCleanup(subprocess.run, ["umount", self.disk])
        self.camera = Camera("tcp", f"rate={RATE}")
        self.addCleanup(lambda: self.camera.stop())
        self.rate, self.samples, self.reloads, self.breaks, self.fills = 0.001, [], 0, 0, 0

    def write_config(self):
        return self.write(program.small(
            f"{self.camera.uri}/ball", source={"width": 48, "height": 32}, model=MODEL,
            optimizer={"lr": self.rate}, monitor={"policy": "skip"}, checkpoint={"dir": self.disk, "every": 200},
            output={"log": self.disk / "log.jsonl", "log_every": 100, "report": self.folder / "report.json"}))

    def begin(self):
        with open(self.folder / "stderr", "w") as err:
            self.process = subprocess.Popen(
                [program.MILLRACE, "run", str(self.write_config()), "--serve", "127.0.0.1:0"], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=err)
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.kill)
        self.wait_until(lambda: "page: " in self.told(), "no page")
        self.page = Page(next(line for line in self.told().splitlines() if line.startswith("page: ")).split()[1])
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
        """The camera is there, and the disk takes what is written."""
        state = self.page.state()
        return state["stream"]["connected"] and state["stream"]["frames_since"] > RATE and not state["controls"]["trouble"]

    def sample(self):
        frames, kernel = self.page.state()["frames"], Path(f"/proc/{self.process.pid}")
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
            for _ in range(2):  # viewers that never read
                viewer = viewers.enter_context(socket.create_connection(self.page.url.split("/")[2].split(":"), timeout=10))
                viewer.sendall(WATCH)
            with urllib.request.urlopen(self.page.url + "picture/prediction", timeout=120) as pictures:
                self.assertTrue(pictures.read(20000))
            self.rate = 0.003 - self.rate
            self.write_config()
            self.process.send_signal(signal.SIGHUP)
            self.reloads += 1
            time.sleep(CYCLE / 6)
            if self.small_disk and number % 5 == 1:
                self.fill_disk()
        self.camera.stop()
        self.breaks += 1
        time.sleep(CYCLE / 12)
        self.camera = Camera("tcp", f"rate={RATE}", port=self.camera.port)
        time.sleep(CYCLE / 2)
        self.wait_until(self.is_at_rest, "it does not come back")

    def fill_disk(self):
        ballast = self.disk / "ballast"
        with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        self.wait_until(lambda: self.page.controls()["trouble"], "a full disk is not reported")
        ballast.unlink()
        self.wait_until(lambda: not self.page.controls()["trouble"], "it does not write again")
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
        report = self.report()
        self.assertEqual(report["source"]["reconnects"], self.breaks)
        self.assert_flat(report)

    def assert_flat(self, report):
        settled = [held for held in self.samples if held["s"] >= SETTLE] or self.samples[1:]
        for what in ("threads", "files"):
            counts = [held[what] for held in settled]
            self.assertLessEqual(max(counts) - min(counts), 2, f"{what} of idle pools at most: {counts}")
        part = max(1, len(settled) // 5)
        # The process's own memory; the kernel takes back pages of files as it likes.
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
