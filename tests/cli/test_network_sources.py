"""Sources behind servers on loopback: a file on a web server, a camera that speaks RTSP and breaks off."""

import functools
import http.server
import time
import unittest

import program
from keeping import NEWEST
from servers import Camera, needs_rtsp, web_server


class NetworkTest(program.CliTest):
    def learn_frames(self, count, uri, **tables):
        """A run that learns from so many frames; returns (report, outcome)."""
        report, outcome = self.learn(program.small(uri, **tables), "--frames", count)
        self.assert_balanced(report)
        self.assertEqual(report["frames"]["trained"], count)
        return report, outcome

    def assert_not_there(self, uri):
        outcome = program.call("run", self.write({"source": {"uri": uri}}))
        self.assert_refused(program.NO_SOURCE, outcome, uri.rpartition("/")[2])


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@unittest.skipUnless(program.VIDEO.exists(), "needs the sample video")
class Web(NetworkTest):
    def setUp(self):
        super().setUp()
        self.url = web_server(self, functools.partial(QuietHandler, directory=program.VIDEO.parent)).url

    def test_http_is_as_good_as_the_file(self):
        learned = []
        for uri in (f"{self.url}/{program.VIDEO.name}", str(program.VIDEO)):
            report, _ = self.learn_frames(50, uri, source={"pace": "asap", "drop": "never"})
            learned.append((report["loss"], program.tensors_of(self.folder / "out.safetensors")))
        self.assertEqual(*learned)

    def test_a_page_that_is_not_there(self):
        self.assert_not_there(f"{self.url}/none.avi")


@needs_rtsp
class RtspCamera(NetworkTest):
    def setUp(self):
        super().setUp()
        self.camera = self.open_camera()
        self.uri = self.camera.uri

    def open_camera(self, *options, **more):
        camera = Camera("tcp", *options, **more)
        self.addCleanup(camera.stop)
        return camera

    def test_a_camera_that_names_no_rate_gets_a_verdict_and_the_policy_acts(self):
        # 2 stages of this network take far longer than 1/25 s.
        report, outcome = self.learn_frames(
            30, f"{self.uri}/rateless", source={"width": 320, "height": 240},
            model={"layers": 4, "features": 64, "kernel": 5}, pipeline={"cut": [4]}, monitor={"policy": "skip"})
        self.assertAlmostEqual(report["realtime"]["F"], 25, delta=2)
        self.assertTrue(report["realtime"]["F_estimated"])
        self.assertFalse(report["realtime"]["holds"])
        self.assertIn("has no frame rate", outcome.err)
        self.assertIn("overload: train every: 1 -> ", outcome.err)

    def test_inspect_tells_what_it_is(self):
        outcome = self.succeed("inspect", f"{self.uri}/ball")
        self.assertIn("64x48", outcome.out)
        self.assertIn("live       yes", outcome.out)

    def test_a_stream_that_is_not_there(self):
        self.assert_not_there(f"{self.uri}/none")

    def wait_for_checkpoint(self, process, after=0.0):
        """Weights were written after that time, so frames are trained."""
        file = self.folder / NEWEST
        self.wait_until(lambda: file.exists() and file.stat().st_mtime > after, "no frame is trained", process)

    def test_killed_it_is_waited_for_and_back_with_another_size_learned_from(self):
        config = self.write(program.small(f"{self.uri}/ball", checkpoint={"dir": self.folder, "every": 5}))
        for back in (True, False):
            with self.subTest(back=back):
                process = self.ends(program.start("run", config, "--report", self.folder / "report.json"))
                self.wait_for_checkpoint(process, after=time.time())
                self.camera.stop()
                self.assertNotIn("@", self.read_until(process, "source: away"))
                if back:
                    gone = time.time()
                    self.camera = self.open_camera("large", port=self.camera.port)
                    self.read_until(process, "source: back")
                    self.wait_for_checkpoint(process, after=gone)
                self.stop(process)
                report = self.report()
                source = report["source"]
                self.assertEqual((source["breaks"], source["reconnects"], source["connected"]), (1, int(back), back))
                self.assertEqual(source["lost_upstream"] > 0, back)
                self.assertGreater(report["frames"]["trained"], 0)
