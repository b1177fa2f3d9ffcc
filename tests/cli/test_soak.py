"""Hours of what happens to a camera's box: nothing grows, and every frame is accounted for.

MILLRACE_SOAK says how many seconds, MILLRACE_SOAK_RATE how many frames a second. With MILLRACE_SOAK_STATE=FOLDER a soak
is one piece of a longer one: it goes on from the checkpoint that the piece before left there, and adds its sums.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from statistics import median

import program
from keeping import MODEL, NEWEST, figure, frames_of
from servers import Camera, CameraRun, needs_rtsp

HOUR = 3600
SECONDS = int(os.environ.get("MILLRACE_SOAK", 4 * HOUR if program.LONG else 6))  # of a piece
CYCLE = 60 if SECONDS > 600 else 6  # s
SETTLE = 600                        # s until memory must be flat
RATE = int(os.environ.get("MILLRACE_SOAK_RATE", 100))  # frames a second: four times a camera's
FATES = ("received", "trained", "dropped", "rejected", "in_flight")
WATCH = (b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
         b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")


@needs_rtsp
class Soak(CameraRun, program.CliTest):
    def setUp(self):
        super().setUp()
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        self.small_disk = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", self.disk], capture_output=True).returncode == 0
        if self.small_disk:
            self.addCleanup(subprocess.run, ["umount", self.disk])
        self.camera = Camera(self, f"rate={RATE}")
        self.state = Path(os.environ.get("MILLRACE_SOAK_STATE", self.folder / "state"))
        self.state.mkdir(parents=True, exist_ok=True)

    def tables(self):
        return program.small(
            f"{self.camera.uri}/ball", source={"width": 48, "height": 32}, model=MODEL,
            optimizer={"lr": self.rate}, monitor={"policy": "skip"}, checkpoint={"dir": self.disk, "every": 200, "resume": True},
            output={"log": self.disk / "log.jsonl", "log_every": 100, "report": self.folder / "report.json"})

    def is_at_rest(self):
        """The camera is there, and the disk takes what is written."""
        state = self.page.state()
        return state["stream"]["connected"] and state["stream"]["frames_since"] > RATE and not state["controls"]["trouble"]

    def sample(self):
        frames, kernel = self.page.state()["frames"], Path(f"/proc/{self.process.pid}")
        self.assert_accounted(frames)
        status = dict(line.split(":", 1) for line in (kernel / "status").read_text().splitlines())
        held = {"s": round(time.monotonic() - self.began), "KiB": int(status["VmRSS"].split()[0]), "anonymous": int(status["RssAnon"].split()[0]),
                "threads": int(status["Threads"]), "files": len(os.listdir(kernel / "fd")), **frames}
        self.samples.append(held)

    def cycle(self, number):
        with contextlib.ExitStack() as viewers:
            for _ in range(2):  # viewers that never read
                viewer = viewers.enter_context(socket.create_connection(self.page.url.split("/")[2].split(":"), timeout=10))
                viewer.sendall(WATCH)
            with urllib.request.urlopen(self.page.url + "picture/prediction", timeout=120) as pictures:
                self.assertTrue(pictures.read(20000))
            self.rate = 0.003 - self.rate
            self.write(self.tables())
            self.process.send_signal(signal.SIGHUP)
            self.reloads += 1
            time.sleep(CYCLE / 6)
            if self.small_disk and number % 5 == 1:
                self.fill_disk()
        self.camera.stop()
        self.breaks += 1
        time.sleep(CYCLE / 12)
        self.camera = Camera(self, f"rate={RATE}", port=self.camera.port)
        time.sleep(CYCLE / 2)
        self.wait_until(self.is_at_rest, "it does not come back", self.process)

    def fill_disk(self):
        ballast = self.disk / "ballast"
        with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        self.wait_until(lambda: self.page.controls()["trouble"], "a full disk is not reported", self.process)
        ballast.unlink()
        self.wait_until(lambda: not self.page.controls()["trouble"], "it does not write again", self.process)
        self.fills += 1

    def test_nothing_grows_and_every_frame_is_accounted_for(self):
        self.run_piece()
        if "MILLRACE_SOAK_STATE" not in os.environ:
            self.run_piece()
        sums = json.loads((self.state / "sums.json").read_text())
        first, last = sums["MiB"][0], sums["MiB"][-1]
        figure(f"soak in {len(sums['MiB'])} pieces", f"{sums['s'] / HOUR:.2f} h, each piece from the checkpoint of the one before, which "
               f"counts exactly the {sums['learned']} frames trained until then; {', '.join(f'{sums[fate]} {fate}' for fate in FATES[:-1])}; "
               f"{first:.1f} MiB of private memory at the end of the first piece, {last:.1f} at the end of the last")

    def run_piece(self):
        """A run that goes on from the piece before and leaves its checkpoint and sums to the next."""
        sums = {"s": 0, "learned": 0, "MiB": [], **dict.fromkeys(FATES, 0)}
        if (self.state / "sums.json").exists():
            sums = json.loads((self.state / "sums.json").read_text())
            shutil.copy(self.state / NEWEST, self.disk)
        self.rate, self.samples, self.reloads, self.breaks, self.fills = 0.001, [], 0, 0, 0
        self.began = time.monotonic()
        self.begin(self.tables())
        self.wait_until(self.is_at_rest, "nothing is trained", self.process)
        self.sample()
        while not self.breaks or time.monotonic() - self.began < SECONDS:  # once at least, however slow the machine
            self.cycle(self.breaks)
            self.sample()
        self.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.process.wait(timeout=120), program.DONE, self.told()[-2000:])
        report = self.report()
        self.assertEqual(report["source"]["reconnects"], self.breaks)
        self.assertEqual(report["run"].get("resumed", {"frames": 0})["frames"], sums["learned"])
        learned = report["frames"]["trained"] + report["overload"]["predicted_only"]
        self.assertEqual(frames_of(self.disk / NEWEST), sums["learned"] + learned, "the checkpoint counts every frame once")
        self.assert_flat(report)
        sums = {"s": sums["s"] + round(time.monotonic() - self.began), "learned": sums["learned"] + learned,
                "MiB": [*sums["MiB"], self.samples[-1]["anonymous"] / 1024],
                **{fate: sums[fate] + report["frames"][fate] for fate in FATES}}
        shutil.copy(self.disk / NEWEST, self.state)
        (self.state / "sums.json").write_text(json.dumps(sums))

    def assert_flat(self, report):
        settled = [held for held in self.samples if held["s"] >= SETTLE] or self.samples[1:]
        for what in ("threads", "files"):
            counts = [held[what] for held in settled]
            self.assertLessEqual(max(counts) - min(counts), 2, f"{what} of idle pools at most: {counts}")
        part = max(1, len(settled) // 5)
        # The process's own memory; the kernel takes back pages of files as it likes.
        first, last = (median(held["anonymous"] for held in some) / 1024 for some in (settled[:part], settled[-part:]))
        long_enough = settled[-1]["s"] > 2 * SETTLE
        memory = f"{first:.1f} to {last:.1f} MiB of private memory after the first {SETTLE // 60} min" if long_enough else "too short to judge memory"
        frames = report["frames"]
        hours = (time.monotonic() - self.began) / HOUR
        figure(f"soak, {hours:.1f} h", f"{hours:.2f} h at {RATE} frames a second: {frames['received']} frames received, "
                       f"{frames['trained']} trained, {frames['dropped']} dropped, {frames['rejected']} rejected; {self.breaks} reconnects, "
                       f"{self.reloads} SIGHUPs, {self.fills} full disks, {3 * self.breaks} viewers; {memory}; "
                       f"{settled[-1]['threads']} threads, {settled[-1]['files']} descriptors")
        if long_enough:
            self.assertLessEqual(last - first, 1, [(held["KiB"], held["anonymous"]) for held in settled])
