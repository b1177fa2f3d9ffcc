"""Frames that the network did not expect are reported: on stderr, in the log, as a picture, by a webhook."""

import http.server
import json

import program
from servers import web_server


class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.posts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


class Alerts(program.CliTest):

    def config(self, unexpected=slice(380, 383), **novelty):
        frames = program.random_frames(1, 400, 16, 16) // 8 + 64  # as noisy as a camera's picture
        frames[unexpected] = 255 - frames[unexpected]
        return {"source": {"uri": program.write_frames(self.folder / "frames", frames), "width": 16, "height": 16, "pace": "asap"},
                "model": {"layers": 2, "features": 4, "kernel": 3}, "pipeline": {"stages": 1},
                "novelty": novelty, "output": {"log": self.folder / "log.jsonl", "log_every": 1}}

    def test_an_event_leaves_a_line_a_picture_a_clip_a_post_and_a_mark_in_the_log(self):
        """Which all name the frame that is new, though the one before it was to predict it."""
        server = web_server(self, Hook)
        server.posts = []
        config = self.config(snapshots=self.folder / "shots", webhook=f"{server.url}/hook", clip_seconds=0.4, minimum=2)
        report, outcome = self.learn({**config, "task": {"kind": "next-frame"}})
        self.assertEqual((report["novelty"]["events"], report["novelty"]["frame"]), (1, 380))
        self.assertIn("unexpected: since frame 380\n", outcome.err)
        self.assertEqual(report["novelty"]["alerts"], {"told": 1, "dropped": 0, "failed": 0, "last_error": ""})
        post, = server.posts
        self.assertEqual((post["kind"], post["event"], post["frame"]), ("unexpected", 1, 380))
        clip, shot = sorted((self.folder / "shots").iterdir())
        self.assertEqual(post["snapshot"], str(shot))
        self.assertRegex(clip.name, "-event-1-frame-380.mp4$")
        self.assertRegex(shot.name, "-event-1-frame-380.png$")
        self.assertGreater(program.png_size(shot)[0], 48)  # three pictures
        self.assertIn("32x16", program.call("inspect", clip).out, "the frame beside its error")
        lines = [json.loads(line) for line in (self.folder / "log.jsonl").read_text().splitlines()]
        self.assertEqual([line["frame"] for line in lines if line["unexpected"]][0], 380)
        self.assertGreater(lines[380]["deviation"], 4)
        self.assertIn(report["novelty"]["marked"], [2, 3])  # the network gets used to it

    def test_an_event_of_the_last_frame_is_reported(self):
        _, outcome = self.learn(self.config(unexpected=slice(399, None)))
        self.assertIn("unexpected: since frame 399\n", outcome.err)

    def test_a_receiver_that_is_away_costs_no_frame_and_prints_no_password(self):
        report, outcome = self.learn(self.config(webhook="http://eve:hunter2@127.0.0.1:1/"))
        self.assertEqual(report["frames"]["trained"], 400)
        self.assertEqual(report["novelty"]["alerts"]["failed"], 1)
        self.assertIn("127.0.0.1:1", report["novelty"]["alerts"]["last_error"])
        self.assertNotIn("hunter2", json.dumps(report) + outcome.err)
