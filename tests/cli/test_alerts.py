"""What the network did not expect is told to the world outside: a picture, a post, the log."""

import http.server
import json
import threading
import unittest

import program


class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.posts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


class Alerts(program.CliTest):

    def setUp(self):
        super().setUp()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
        self.server.posts = []
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        usual = program.random_frames(1, 400, 16, 16) // 8 + 64  # as restless as a camera's picture
        usual[380:383] = 255 - usual[380:383]
        self.uri = program.write_frames(self.folder / "frames", usual)

    def config(self, **novelty):
        return {"source": {"uri": self.uri, "width": 16, "height": 16, "pace": "asap"},
                "model": {"layers": 2, "features": 4, "kernel": 3}, "pipeline": {"stages": 1},
                "novelty": novelty, "output": {"log": self.folder / "log.jsonl", "log_every": 1}}

    def test_an_event_leaves_a_picture_a_post_and_a_mark_in_the_log(self):
        url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"
        report, _ = self.learn(self.config(snapshots=self.folder / "shots", webhook=url))
        self.assertEqual(report["novelty"]["events"], 1)
        self.assertEqual(report["novelty"]["alerts"], {"told": 1, "dropped": 0, "failed": 0, "last_error": ""})
        post, = self.server.posts
        self.assertEqual((post["kind"], post["event"], post["frame"]), ("unexpected", 1, 380))
        shot, = (self.folder / "shots").iterdir()
        self.assertEqual(post["snapshot"], str(shot))
        self.assertGreater(program.png_size(shot)[0], 32)
        lines = [json.loads(line) for line in (self.folder / "log.jsonl").read_text().splitlines()]
        self.assertEqual([line["frame"] for line in lines if line["unexpected"]][0], 380)
        self.assertGreater(lines[380]["deviation"], 4)
        self.assertFalse(lines[379]["unexpected"])

    def test_nobody_who_is_away_costs_a_frame(self):
        report, outcome = self.learn(self.config(webhook="http://eve:hunter2@127.0.0.1:1/"))
        self.assertEqual(report["frames"]["trained"], 400)
        self.assertEqual(report["novelty"]["alerts"]["failed"], 1)
        self.assertIn("127.0.0.1:1", report["novelty"]["alerts"]["last_error"])
        self.assertNotIn("hunter2", json.dumps(report) + outcome.err)


if __name__ == "__main__":
    unittest.main()
