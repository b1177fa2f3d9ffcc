"""`millrace run --serve`: the page's own tests are in tests/page; here a real run is behind it."""

import contextlib
import json
import signal
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path

import program

PATIENCE = 120  # seconds until a test gives up


class Serve(program.CliTest):

    @contextlib.contextmanager
    def start(self, *options):
        with program.start("run", program.write_toml(self.folder / "live.toml", {
                "source": {"uri": "synth:shapes", "width": 24, "height": 16, "pace": "live", "fps": 100.0},
                "model": {"layers": 2, "features": 2, "kernel": 3}, "pipeline": {"stages": 2, "cut": [2]},
                "checkpoint": {"dir": self.folder / "kept"}}), "--serve", "127.0.0.1:0", *options) as process:
            try:
                self.url = next((line.split()[1] for line in process.stderr if line.startswith("page: ")), None)
                self.assertIsNotNone(self.url, "no page is served")
                yield process
            except BaseException:
                process.kill()  # or the end of its `with` waits for ever
                raise

    def get(self, path, **headers):
        with urllib.request.urlopen(urllib.request.Request(self.url + path, headers=headers), timeout=60) as answer:
            return answer.read().decode()

    def state(self):
        return json.loads(self.get("state"))

    def rate(self):
        return self.state()["controls"]["learning_rate"]

    def ask(self, **wish):
        request = urllib.request.Request(self.url + "control", json.dumps(wish).encode(), {
            "Content-Type": "application/json", "X-Millrace": "control"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            self.assertEqual(answer.status, 202)

    def rests(self):
        """It says so, and within many frames' time trains none."""
        before = self.state()
        time.sleep(0.3)
        return before["controls"]["paused"] and self.state()["frames"]["trained"] == before["frames"]["trained"]

    def finish(self, process):
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, program.DONE, err)

    def test_what_a_viewer_sees_and_asks_for(self):
        with self.start() as process:
            self.wait_until(lambda: self.state()["frames"]["trained"] > 20, "nothing is trained")
            self.assertEqual(self.state()["schedule"], "partime")
            self.assertIn("millrace_frames_trained_total", self.get("metrics"))
            self.wait_until(lambda: json.loads(self.get("healthz"))["frames_trained_since_reconnect"] > 0, "no health")

            self.ask(action="pause")
            self.wait_until(self.rests, "it goes on")
            rested = self.state()["frames"]["trained"]
            self.ask(action="resume")
            self.wait_until(lambda: self.state()["frames"]["trained"] > rested, "it rests for ever")

            self.ask(learning_rate=0.002)
            self.wait_until(lambda: abs(self.rate() - 0.002) < 1e-9, "the rate stays")
            self.ask(action="save")
            self.wait_until((self.folder / "kept" / "checkpoint.safetensors").exists, "nothing is saved")
            self.finish(process)

    def test_stopping_ends_a_run_that_is_paused(self):
        with self.start() as process:
            self.wait_until(lambda: self.state()["frames"]["trained"] > 5, "nothing is trained")
            self.ask(action="pause")
            self.wait_until(lambda: self.state()["controls"]["paused"], "it does not rest")
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=PATIENCE)
            self.assertEqual(process.returncode, program.DONE, err)
        self.assertTrue((self.folder / "kept" / "checkpoint.safetensors").exists())

    def test_a_paused_run_reads_its_config_again_and_ends_on_a_broken_one(self):
        with self.start() as process:
            self.wait_until(lambda: self.state()["frames"]["trained"] > 5, "nothing is trained")
            self.ask(action="pause")
            self.wait_until(lambda: self.state()["controls"]["paused"], "it does not rest")
            config = self.folder / "live.toml"
            config.write_text(config.read_text() + "[optimizer]\nlr = 0.002\n")
            process.send_signal(signal.SIGHUP)
            self.wait_until(lambda: abs(self.rate() - 0.002) < 1e-9, "the rate stays")
            self.assertTrue(self.state()["controls"]["paused"])
            config.write_text("a" + ".a" * 100000 + " = 0")
            process.send_signal(signal.SIGHUP)
            for line in process.stderr:
                if "too many parts" in line:
                    break
            self.finish(process)

    def test_a_save_is_made_while_a_run_is_paused(self):
        with self.start() as process:
            self.wait_until(lambda: self.state()["frames"]["trained"] > 5, "nothing is trained")
            self.ask(action="pause")
            self.wait_until(self.rests, "it does not rest")
            self.ask(action="save")
            self.wait_until(lambda: self.state()["controls"]["saves"] == 1, "nothing is saved")
            self.assertTrue(self.state()["controls"]["paused"])
            self.wait_until(self.rests, "it goes on")
            self.finish(process)

    def test_paused_and_on_a_dead_disk_it_ends_and_saves_the_rest(self):
        weights, kept = self.folder / "out.safetensors", self.folder / "kept"
        with self.start("--set", f"output.weights={weights}", "--report", str(self.folder / "report.json")) as process:
            self.wait_until(lambda: self.state()["frames"]["trained"] > 5, "nothing is trained")
            self.ask(action="pause")
            kept.rename(self.folder / "aside")
            kept.write_text("no folder")
            self.ask(action="save")
            self.wait_until(lambda: str(kept) in self.state()["controls"]["trouble"], "nothing is told")
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=PATIENCE)
            self.assertEqual(process.returncode, program.FAILED, err)
        self.assertEqual(len([line for line in err.splitlines() if line.startswith("millrace: error: ")]), 1, err)
        self.assert_balanced(json.loads((self.folder / "report.json").read_text()))
        self.assertTrue(weights.exists())

    def health(self):
        try:
            return 200, json.loads(self.get("healthz"))
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def test_a_checkpoint_that_fails_is_told_of_while_the_run_goes_on(self):
        kept = self.folder / "kept"
        with self.start("--set", "checkpoint.every=20") as process:
            self.wait_until(lambda: self.health()[0] == 200 and self.state()["controls"]["saves"] > 0, "it does not begin")
            kept.rename(self.folder / "aside")
            kept.write_text("no folder")  # as root, too, nothing can be written there
            self.wait_until(lambda: self.health()[0] == 503, "nothing is told")
            self.assertEqual(self.health()[1]["status"], "not saving")
            self.assertIn(str(kept), self.state()["controls"]["trouble"])
            metrics = self.get("metrics")
            self.assertIn("millrace_write_trouble 1", metrics)
            self.assertRegex(metrics, r"millrace_checkpoints_failed_total [1-9]")
            failed = self.state()["controls"]["failed_saves"]
            self.wait_until(lambda: self.state()["controls"]["failed_saves"] > failed, "no other one fails")
            kept.unlink()
            (self.folder / "aside").rename(kept)
            self.wait_until(lambda: self.health()[0] == 200, "it never recovers")
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=PATIENCE)
            self.assertEqual(process.returncode, program.DONE, err)
        told = [line for line in err.splitlines() if line.startswith("checkpoint: ")]
        self.assertEqual(len(told), 2, told)
        self.assertIn(str(kept), told[0])
        self.assertEqual(told[1], "checkpoint: written again")

    def test_a_token_is_asked_of_everybody(self):
        with self.start("--token", "a-long-enough-token") as process:
            with self.assertRaises(urllib.error.HTTPError) as refused:
                self.get("state")
            self.assertEqual(refused.exception.code, 401)
            self.assertIn("frames", self.get("state", Authorization="Bearer a-long-enough-token"))
            self.finish(process)

    def test_a_token_may_stand_in_a_file(self):
        file = self.folder / "token"
        file.write_text("a-long-enough-token\n")
        with self.start("--token-file", file) as process:
            self.assertNotIn(b"a-long-enough", Path(f"/proc/{process.pid}/cmdline").read_bytes())
            self.assertIn("frames", self.get("state", Authorization="Bearer a-long-enough-token"))
            self.finish(process)
        for text in (None, "\n", "too-short"):
            file.unlink(missing_ok=True)
            if text is not None:
                file.write_text(text)
            refused = program.call("run", "--serve", "--token-file", file, "--set", "source.uri=synth:shapes")
            self.assert_refused(program.BAD_USAGE, refused, "--token-file", file)

    def test_others_are_not_let_in_without_a_token(self):
        refused = program.call("run", "--serve", "0.0.0.0:0", "--set", "source.uri=synth:shapes")
        self.assert_refused(program.BAD_USAGE, refused, "--serve", "token")


if __name__ == "__main__":
    unittest.main()
