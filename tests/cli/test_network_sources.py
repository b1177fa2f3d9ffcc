"""Sources behind servers on loopback: a file on a web server, a camera that speaks RTSP."""

import functools
import http.server
import os
import subprocess
import threading
import unittest

import program


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class QuietServer(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        """A reader that has seen enough hangs up."""


@unittest.skipUnless(program.VIDEO.exists(), "needs the sample video")
class Web(program.CliTest):

    def setUp(self):
        super().setUp()
        handler = functools.partial(QuietHandler, directory=program.VIDEO.parent)
        self.server = QuietServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def tearDown(self):
        self.server.shutdown()
        self.server.server_close()
        super().tearDown()

    def learned(self, uri):
        report, _ = self.learn({"source": {"uri": uri, "width": 24, "height": 16, "pace": "asap", "drop": "never"},
                                "model": {"layers": 2, "features": 2, "kernel": 3},
                                "pipeline": {"stages": 2, "cut": [2]}}, "--frames", "50")
        self.assert_balanced(report)
        self.assertEqual(report["frames"]["trained"], 50)
        return report["loss"], program.tensors_of(self.folder / "out.safetensors")

    def test_http_is_as_good_as_the_file(self):
        port = self.server.server_address[1]
        self.assertEqual(self.learned(f"http://127.0.0.1:{port}/{program.VIDEO.name}"), self.learned(str(program.VIDEO)))

    def test_a_page_that_is_not_there(self):
        port = self.server.server_address[1]
        file = program.write_toml(self.folder / "none.toml", {"source": {"uri": f"http://127.0.0.1:{port}/none.avi"}})
        self.assert_refused(program.NO_SOURCE, program.call("run", file), "none.avi")


SERVER = os.environ.get("RTSP_SERVER", str(program.ROOT / "build" / "release" / "tests" / "io" / "rtsp_server"))


@unittest.skipUnless(os.path.exists(SERVER), "this build has no GStreamer")
class Camera(program.CliTest):

    def setUp(self):
        super().setUp()
        self.server = subprocess.Popen([SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.uri = f"rtsp://127.0.0.1:{int(self.server.stdout.readline())}"

    def tearDown(self):
        self.server.kill()
        self.server.communicate()
        super().tearDown()

    def test_a_live_stream_is_learned_from(self):
        report, _ = self.learn({"source": {"uri": f"{self.uri}/ball"}, "model": {"layers": 2, "features": 2, "kernel": 3},
                                "pipeline": {"stages": 2, "cut": [2]}}, "--frames", "40")
        self.assert_balanced(report)
        self.assertEqual(report["frames"]["trained"], 40)
        self.assertEqual(report["realtime"]["F"], 25)

    def test_a_camera_that_names_no_rate_gets_a_verdict_and_the_policy_acts(self):
        # 2 stages of this network take far longer than 1/25 s.
        report, outcome = self.learn({"source": {"uri": f"{self.uri}/rateless", "width": 320, "height": 240},
                                      "model": {"layers": 4, "features": 32, "kernel": 5},
                                      "pipeline": {"stages": 2, "cut": [4]}, "monitor": {"policy": "skip"}},
                                     "--frames", "30")
        self.assertAlmostEqual(report["realtime"]["F"], 25, delta=2)
        self.assertTrue(report["realtime"]["F_estimated"])
        self.assertFalse(report["realtime"]["holds"])
        self.assertIn("names no rate", outcome.err)
        self.assertIn("overload: train every: 1 -> ", outcome.err)

    def test_inspect_tells_what_it_is(self):
        outcome = program.call("inspect", f"{self.uri}/ball")
        self.assert_code(program.DONE, outcome)
        self.assertIn("64x48", outcome.out)
        self.assertIn("live       yes", outcome.out)

    def test_a_stream_that_is_not_there(self):
        file = program.write_toml(self.folder / "none.toml", {"source": {"uri": f"{self.uri}/none"}})
        self.assert_refused(program.NO_SOURCE, program.call("run", file), "/none")


if __name__ == "__main__":
    unittest.main()
