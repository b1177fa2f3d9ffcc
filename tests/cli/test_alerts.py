"""Frames that the network did not expect are reported: on stderr, in the log, as a picture, by a webhook."""

import http.server
import json

import program
from servers import web_server


class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posts.append((self.path, self.headers["Content-Type"], self.headers["Authorization"], json.loads(text)))
        self.send_response(500 if "refuse" in self.path else 204)
        self.end_headers()


class Alerts(program.CliTest):
    def config(self, unexpected=slice(380, 383), **novelty):
        frames = program.frames_with_an_event(unexpected)
        return {"source": {"uri": program.write_frames(self.folder / "frames", frames), "width": 16, "height": 16, "pace": "asap", "fps": 10.0},
                "model": {"layers": 2, "features": 4, "kernel": 3}, "pipeline": {"stages": 1},
                "novelty": {"minimum": 1, **novelty}, "output": {"log": self.folder / "log.jsonl", "log_every": 1}}

    def receiver(self):
        """One that keeps what is posted."""
        server = web_server(self, Hook)
        server.posts = []
        return server

    def test_an_event_leaves_a_line_a_picture_a_clip_a_post_and_a_mark_in_the_log(self):
        """Which all name the frame that is new, though the one before it was to predict it."""
        server = self.receiver()
        webhook = server.url.replace("//", "//eve:pass%20word@") + "/hook?x=1"
        config = self.config(snapshots=self.folder / "shots", webhook=webhook, clip_seconds=0.4, minimum=2)
        report, outcome = self.learn({**config, "task": {"kind": "next-frame"}})
        self.assertEqual((report["novelty"]["events"], report["novelty"]["frame"]), (1, 380))
        self.assertIn("unexpected: since frame 380, ", outcome.err)
        self.assertEqual(report["novelty"]["alerts"], {"told": 1, "dropped": 0, "failed": 0, "last_error": ""})
        (*head, post), = server.posts
        self.assertEqual(head, ["/hook?x=1", "application/json", "Basic ZXZlOnBhc3Mgd29yZA=="])
        self.assertEqual((post["kind"], post["event"], post["frame"]), ("unexpected", 1, 380))
        sidecar, clip, shot = sorted((self.folder / "shots").iterdir())
        self.assertEqual(json.loads(sidecar.read_text()), post)
        self.assertEqual(post["snapshot"], str(shot))
        self.assertRegex(clip.name, "-event-1-frame-380.mp4$")
        self.assertRegex(shot.name, "-event-1-frame-380.png$")
        self.assertGreater(program.png_size(shot)[0], 48)  # three pictures
        self.assertIn("32x16", program.call("inspect", clip).out, "the frame beside its error")
        lines = program.lines_of(self.folder / "log.jsonl")
        self.assertEqual([line["frame"] for line in lines if line["unexpected"]][0], 380)
        self.assertGreater(lines[380]["deviation"], 4)
        self.assertIn(report["novelty"]["marked"], range(3, 7))  # light is compared over three looks

    def test_an_event_of_a_labelled_stream_leaves_a_picture(self):
        labels = self.folder / "labels.csv"
        labels.write_text("frame,class\n0,a\n200,b\n")
        self.learn({**self.config(snapshots=self.folder / "shots"),
                    "task": {"kind": "label", "labels": labels, "classes": ["a", "b"], "loss": "cross-entropy"},
                    "model": {"preset": "layers", "layer": [{"type": "flatten"}, {"type": "linear", "out": 2}]}})
        (shot,) = (self.folder / "shots").glob("*.png")
        self.assertGreater(program.png_size(shot)[0], 48)

    def test_an_event_of_the_last_frame_is_reported(self):
        _, outcome = self.learn(self.config(unexpected=slice(399, None)))
        self.assertIn("unexpected: since frame 399, ", outcome.err)

    def test_a_receiver_that_is_away_or_refuses_costs_no_frame_and_no_password_is_printed(self):
        there = self.receiver().url.split("//")[1]
        for place, unexpected, told in (("127.0.0.1:1", slice(380, 383), "127.0.0.1:1"),
                                        (f"{there}/refuse", slice(399, None), "answered 500")):  # as the run ends
            with self.subTest(place):
                report, outcome = self.learn(self.config(unexpected, webhook=f"http://eve:hunter2@{place}"), trained=400)
                alerts = report["novelty"]["alerts"]
                self.assertEqual(alerts["failed"], 1)
                self.assertIn(told, alerts["last_error"])
                self.assertEqual(outcome.err.count("alert: " + alerts["last_error"]), 1, outcome.err)
                self.assertNotIn("hunter2", json.dumps(report) + outcome.err)
