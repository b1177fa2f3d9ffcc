"""SIGINT and SIGTERM: the first drains and saves, the second aborts."""

import array
import contextlib
import fcntl
import os
import pty
import signal
import socket
import subprocess
import termios
import time
import unittest
from pathlib import Path

from safetensors.torch import load_file

import program
from keeping import NEWEST, figure, frames_of


class Signals(program.CliTest):
    def config(self, **tables):
        """An endless run's config, in a file."""
        return self.write(program.small(**program.merged({"source": {"pace": "live"}, "output": {
            "report": self.folder / "report.json", "weights": self.folder / "weights.safetensors"}}, tables)))

    def assert_saved(self):
        report = self.report()
        self.assertEqual(report["updates"][-1], report["frames"]["trained"])
        self.assertEqual(len(load_file(self.folder / "weights.safetensors")), 4)

    @program.each(*zip((signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM),
                       3 * ({"drop": "newest"}, {"drop": "never", "fps": 2000.0})))
    def test_one_signal_drains_and_saves(self, number, source):
        out, err = self.stop(self.start_run(self.config(source=source)), number)
        self.assertNotIn("error", err)
        self.assertIn("received", out)  # the summary
        self.assert_saved()

    def test_a_reader_of_stderr_that_has_stopped_halts_nothing(self):
        reader, full = os.pipe()
        os.set_blocking(full, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(full, bytes(4096))
        os.set_blocking(full, True)
        process = self.spawn([program.MILLRACE, "run", self.config(), "--frames", 30], stderr=full)
        os.close(full)
        self.assertEqual(process.wait(120), program.DONE)
        os.close(reader)
        self.assert_saved()

    @program.each((signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGINT))
    def test_a_second_signal_aborts(self, first, second):
        # A network so slow that the waiting frames take minutes to drain.
        process = self.start_run(self.config(source={"drop": "never", "fps": 1000.0, "width": 512, "height": 512},
                                             model={"features": 64, "kernel": 31}))
        process.send_signal(first)
        while "draining" not in self.read_until(process, ""):
            pass
        while process.poll() is None:  # at once it would be the same signal
            process.send_signal(second)
            time.sleep(0.1)
        self.assertNotEqual(process.returncode, program.DONE)
        self.assertFalse((self.folder / "weights.safetensors").exists())

    def test_a_terminal_that_is_closed_leaves_no_orphan(self):
        file = self.config()
        child, terminal = pty.fork()
        if child == 0:
            os.execv(program.MILLRACE, [program.MILLRACE, "run", str(file)])
        while b"frame " not in os.read(terminal, 4096):
            pass
        os.kill(child, signal.SIGHUP)  # while the terminal is there: read the config again
        told = b""
        while b"config: " not in told:
            told += os.read(terminal, 4096)
        os.close(terminal)
        _, status = os.waitpid(child, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), program.DONE)
        self.assert_saved()

    def test_a_reader_that_never_reads_does_not_keep_a_run_from_ending(self):
        process = self.start_run(self.config(source={"fps": 500.0}, output={"log": "-", "log_every": 1}))
        full = 0
        while (now := self.unread(process.stdout)) > full or now < 50000:  # a pipe takes 64 KiB
            full = now
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=120)
        self.assert_saved()

    def unread(self, pipe):
        count = array.array("i", [0])
        fcntl.ioctl(pipe, termios.FIONREAD, count)
        return count[0]


class Loading(program.CliTest):
    """A stop before the first frame: while LibTorch, a checkpoint, the source or recorded steps are loaded."""

    HEARD = 1 << (signal.SIGTERM - 1)

    def setUp(self):
        super().setUp()
        self.kept = self.folder / "kept"
        self.config = self.write({
            "source": {"uri": "synth:shapes", "pace": "live", "width": 16, "height": 16},
            "model": {"layers": 3, "features": 16, "kernel": 3}, "pipeline": {"stages": 2},
            "checkpoint": {"dir": self.kept, "every": 10, "resume": True},
            "output": {"weights": self.kept / "weights.safetensors", "log": self.folder / "log.jsonl"}})

    def start(self, *options, **env):
        return self.ends(program.start("run", self.config, *options, env=env))

    def hears(self, process):
        status = Path(f"/proc/{process.pid}/status").read_text()
        return int(status.partition("SigCgt:")[2].split()[0], 16) & self.HEARD

    def terminate(self, process, *codes):
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        self.assertIn(process.returncode, codes or [program.DONE], err)
        self.assertNotIn("millrace: error", err)

    def test_at_any_moment_it_ends_in_order_and_nothing_is_lost(self):
        began = time.monotonic()
        process = self.start()
        self.read_until(process, "frame ")
        load = time.monotonic() - began
        self.terminate(process)
        learned = frames_of(self.kept / NEWEST)
        self.terminate(self.start(), program.DONE, -signal.SIGTERM)  # it may not yet handle the signal
        moments = 40 if program.LONG else 10
        for moment in range(moments):
            with self.subTest(moment=moment):
                process = self.start()
                while not self.hears(process):
                    self.assertIsNone(process.poll())
                time.sleep(load * moment / moments)
                self.terminate(process)
                self.assertGreaterEqual(frames_of(self.kept / NEWEST), learned)
                learned = frames_of(self.kept / NEWEST)
                self.assertEqual(len(load_file(self.kept / "weights.safetensors")), 6)
                self.assertEqual([file for file in os.listdir(self.kept) if ".tmp." in file], [])
        figure("SIGTERM while loading", f"at {moments} points in the {load:.1f} s before the first frame: every run exited with 0, nothing lost")

    def test_while_libtorch_is_loaded_it_ends_in_order(self):
        process = self.start(LD_DEBUG="libs")
        for line in process.stderr:
            if "calling init: " in line and "libtorch_cpu" in line:
                break
        self.terminate(process)

    def test_a_source_that_never_answers_does_not_keep_it(self):
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            for scheme in ("rtsp", "http"):
                with self.subTest(scheme=scheme):
                    process = self.start("--set", f"source.uri={scheme}://127.0.0.1:{deaf.getsockname()[1]}/x")
                    with deaf.accept()[0]:
                        self.terminate(process)


@unittest.skipUnless("libsystemd" in subprocess.getoutput(f"ldd {program.MILLRACE}"), "built without libsystemd")
class Service(program.CliTest):
    """Under systemd: READY, WATCHDOG and STOPPING arrive, with what was trained."""

    def test_systemd_hears_of_trained_frames_until_the_end(self):
        config = self.write(program.bare(program.small(source={"pace": "live", "fps": 50})))
        heard, environment = self.service(1_000_000)
        for frames in (0, 100):  # until it asks for the end, or unasked
            process = self.ends(program.start("run", config, "--quiet", "--frames", frames, env=environment))
            self.assertIn(b"READY=1", heard.recv(4096))
            self.assertRegex(heard.recv(4096), rb"(?s)^(?=.*WATCHDOG=1\b).*STATUS=frame \d+ .* fps")
            if not frames:
                process.send_signal(signal.SIGTERM)
            while b"STOPPING" not in (message := heard.recv(4096)):
                self.assertIn(b"WATCHDOG", message)
            self.finish(process)
