"""`millrace run --serve`: what a viewer sees and controls of a real run. tests/page tests the page itself."""

import json
import os
import resource
import signal
import socket
import time
import urllib.parse

import program
from keeping import NEWEST, KeepingTest, figure
from servers import Page, needs_rtsp, serve

TOKEN = "a-long-enough-token"


class Serve(KeepingTest):
    def start(self, *options, **tables):
        self.tables_there = program.small(**program.merged(
            {"source": {"pace": "live", "fps": 100.0}, "checkpoint": {"dir": self.kept}}, tables))
        process, self.page = serve(self, self.write(self.tables_there), *options)
        return process

    def ask(self, **command):
        self.assertEqual(self.page.ask(**command), 202)

    def rests(self):
        """The page says paused, and 30 frames' time trains none."""
        before = self.page.state()
        time.sleep(0.3)
        return before["controls"]["paused"] and self.page.trained() == before["frames"]["trained"]

    def wait_for_rate(self, rate):
        self.wait_until(lambda: abs(self.page.controls()["learning_rate"] - rate) < 1e-9, "the rate stays")

    def test_what_a_viewer_sees_and_asks_for_of_a_run_that_pauses_and_reads_its_config_again(self):
        process = self.start()
        self.wait_until(lambda: self.page.trained() > 5, "nothing is trained")
        self.ask(action="pause")
        self.wait_until(self.rests, "it does not pause")
        self.assertEqual(self.page.state()["schedule"], "partime")
        self.assertIn("millrace_frames_trained_total", self.page.request("metrics")[1])
        rested = self.page.trained()
        self.ask(action="resume")
        self.wait_until(lambda: self.page.trained() > rested, "it stays paused")
        self.wait_until(lambda: self.page.health()[1]["frames_trained_since_reconnect"] > 0, "no health")
        self.ask(learning_rate=0.003)
        self.wait_for_rate(0.003)
        self.ask(action="pause")
        self.wait_until(self.rests, "it does not pause")
        judged = self.page.state()["realtime"]["window"]
        self.ask(action="save")
        self.wait_until(lambda: self.page.controls()["saves"] == 1 and (self.kept / NEWEST).exists(), "nothing is saved")
        self.wait_until(self.rests, "it goes on")
        self.assertEqual(self.page.state()["realtime"]["window"], judged, "frames that only the save lets through")
        config = self.write({**self.tables_there, "optimizer": {"lr": 0.002}})
        process.send_signal(signal.SIGHUP)
        self.wait_for_rate(0.002)
        self.wait_until(self.rests, "it goes on")
        config.write_text("a" + ".a" * 100000 + " = 0")
        process.send_signal(signal.SIGHUP)
        while "too many parts" not in self.read_until(process, ""):
            pass
        self.stop(process)

    def test_openapi_tells_of_every_number(self):
        # Fields that a run has only after an event, or with classes.
        some = {f"/state.{name}" for name in ("answer", "novelty.last")}

        def differ(value, schema, at):
            """Names that are only in one of the two."""
            if "$ref" in schema:
                schema = api["components"]["schemas"][schema["$ref"].split("/")[-1]]
            if isinstance(value, dict):
                names = {f"{at}.{name}" for name in value.keys() ^ schema["properties"].keys()}
                yield from names - some
                for name in value.keys() & schema["properties"].keys():
                    yield from differ(value[name], schema["properties"][name], f"{at}.{name}")
            elif isinstance(value, list) and value:
                yield from differ(value[0], schema["items"], at)

        self.start(task={"kind": "next-frame"}, model={"preset": "auto"})
        self.wait_until(lambda: self.page.trained() > 5, "nothing is trained")
        api = json.loads(self.page.request("openapi.json")[1])
        schemas = {path: ways["get"]["responses"]["200"]["content"]["application/json"]["schema"]
                   for path, ways in api["paths"].items() if path in ("/history", "/healthz")}
        schemas["/state"] = api["components"]["schemas"]["State"]
        for path, schema in schemas.items():
            self.assertEqual(sorted(differ(json.loads(self.page.request(path[1:])[1]), schema, path)), [])

    def test_a_checkpoint_that_fails_is_reported_while_the_run_goes_on(self):
        process = self.start(checkpoint={"every": 20})
        self.wait_until(lambda: self.page.health()[0] == 200 and self.page.controls()["saves"] > 0, "it does not begin")
        self.break_disk()
        self.wait_until(lambda: self.page.health()[0] == 503, "no trouble is reported")
        self.assertEqual(self.page.health()[1]["status"], "not saving")
        self.assertIn(str(self.kept), self.page.controls()["trouble"])
        metrics = self.page.request("metrics")[1]
        self.assertIn("millrace_write_trouble 1", metrics)
        self.assertRegex(metrics, r"millrace_checkpoints_failed_total [1-9]")
        failed = self.page.controls()["failed_saves"]
        self.wait_until(lambda: self.page.controls()["failed_saves"] > failed, "it tries no second time")
        self.mend_disk()
        self.wait_until(lambda: self.page.health()[0] == 200, "it never recovers")
        _, err = self.stop(process)
        told = [line for line in err.splitlines() if line.startswith("checkpoint: ")]
        self.assertEqual(len(told), 2, told)
        self.assertIn(str(self.kept), told[0])
        self.assertEqual(told[1], "checkpoint: written again")

    def test_a_picture_that_never_comes_is_told_and_costs_nothing(self):
        uri = program.write_frames(self.folder / "frames", program.random_frames(seed=1, count=50))
        os.mkfifo(self.folder / "frames" / "00050.png")  # as on a share that hangs
        process = self.start(source={"uri": uri}, output={"weights": self.weights})
        self.wait_until(lambda: self.page.health()[1]["status"] == "stalled", "it says that all is well")
        self.assertEqual(self.page.health()[0], 503)
        _, err = self.stop(process, signal.SIGTERM)
        self.assertIn("source: hung", err)
        self.assertTrue(self.weights.exists())
        self.assertGreater(self.learned(), 0)
        figure("a picture that never comes", "/healthz returns 503; SIGTERM saves everything learned")

    @needs_rtsp
    def test_connections_without_the_password_leave_descriptors_to_save_with(self):
        (token := self.folder / "token").write_text(TOKEN + "\n")
        process = self.start("--token-file", token, checkpoint={"every": 20, "dir": self.kept},
                             output={"video": "rtsp://eve:password@127.0.0.1:0/live", "weights": self.weights})
        self.assertEqual(self.page.request("state")[0], 401)
        video = urllib.parse.urlsplit(self.read_until(process, "video: "))
        self.wait_for_more(process)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (128, 128))
        crowd = []
        for port in (urllib.parse.urlsplit(self.page.url).port, video.port):
            for _ in range(200):
                try:
                    crowd.append(socket.create_connection(("127.0.0.1", port), timeout=1))
                    crowd[-1].sendall(b"GET / HTTP/1.1\r\n")
                except OSError:
                    break  # nobody takes it in
        self.wait_for_more(process)
        self.assertIn("frames", Page(self.page.url, TOKEN).state())
        self.stop(process, signal.SIGTERM)
        self.assertTrue(self.weights.exists())
        figure("connections without the password", f"{len(crowd)} to page and video at 128 descriptors: the page answers, "
                                                   "checkpoints continue, and everything is saved at the end")
        for one in crowd:
            one.close()

    def test_a_token_that_is_missing_or_too_short_is_refused(self):
        none, empty, short, pipe = (self.folder / name for name in ("none", "empty", "short", "pipe"))
        empty.write_text("\n")
        short.write_text("too-short")
        os.mkfifo(pipe)  # that nobody writes
        cases = [(("--token-file", file), "--token-file", file, part) for file, part in (
            (none, "No such file"), (empty, "token"), (short, "token"), (pipe, "holds no token"))]
        self.assert_each_refused((("run", "--serve", *words, "--set", "source.uri=synth:shapes"), *parts)
                                 for words, *parts in (*cases, (("0.0.0.0:0",), "--serve", "token")))
