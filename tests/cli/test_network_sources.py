"""Sources behind servers on loopback: a file on a web server, a camera that speaks RTSP and breaks off."""

import os
import signal
import subprocess
import time
import unittest

import program
from keeping import NEWEST
from servers import Camera, needs_rtsp, web_camera


class NetworkTest(program.CliTest):
    def learn_frames(self, count, uri, **tables):
        """A run that learns from so many frames; returns (report, outcome)."""
        return self.learn(program.small(uri, **tables), "--frames", count, trained=count)

    def assert_not_there(self, uri):
        self.assert_refuses("run", {"source": {"uri": uri}}, uri.rpartition("/")[2], code=program.NO_SOURCE)


# Replacements for the type, boundary, length and JPEG picture of 64x48 in a web camera's parts.
PARTS = {
    "plain": {}, "jpg": {"kind": "image/jpg"}, "pjpeg": {"kind": "image/pjpeg"}, "x-jpeg": {"kind": "image/x-jpeg"},
    "octets": {"kind": "application/octet-stream"}, "upper": {"kind": "IMAGE/JPEG"}, "no-type": {"kind": ""}, "png": {"kind": "image/png", "format": "PNG"},
    "no-length": {"length": False}, "wrong-boundary": {"declared": "y"}, "dashes": {"boundary": "--x"}, "quoted": {"declared": '"x"'},
    "bare-lines": {"line": "\n"}, "more-headers": {"more": "X-Timestamp: 12.5"}, "no-first-boundary": {"first": False},
    "greeting": {"before": b"hello\r\n"}, "within-a-picture": {"before": bytes(range(200)) * 50 + b"\r\n"}, "breaks-off": {"count": 4},
    "another-size": {"sizes": ((64, 48), (96, 64))},
}
PICTURE_OF = b"--x\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n"
HUGE = b"\xff\xd8\xff\xe0\0\x04ab\xff\xc0\0\x0b\x08\x3e\x80\x3e\x80\x01\x01\x11\0"
# What comes after four pictures, and the reason that is told.
BREAKS = {"frozen": (b"", "no picture for 2.5 s"),
          "huge": (PICTURE_OF % len(HUGE) + HUGE, "a picture of 16000x16000 has more pixels"),
          "endless": (PICTURE_OF % 2_000_000_000 + b"\xff\xd8" + bytes(2 << 20), "a picture has more bytes")}
MOVING = ["-f", "lavfi", "-i", "testsrc2=size=64x48:rate=25:duration=0.8", "-pix_fmt", "yuv420p"]
# 20 frames each: FFmpeg's options.
FILES = {
    "index-last.mp4": [], "index-first.mp4": ["-movflags", "faststart"], "fragments.mp4": ["-movflags", "frag_keyframe+empty_moov"],
    "b-frames.mp4": ["-bf", "3", "-g", "20"], "wide-pixels.mp4": ["-vf", "setsar=2/1"], "a.ts": [], "b.mkv": [], "c.avi": ["-c:v", "mjpeg", "-pix_fmt", "yuvj420p"],
}
LIST = "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:1\n"
MASTER = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=90000\n"
# Playlist entries that lead elsewhere; {} is another server's URL.
ELSEWHERE = {
    "segment": LIST + "#EXTINF:1,\n{}/a.ts\n#EXT-X-ENDLIST\n", "list": MASTER + "{}/good.m3u8\n",
    "key": LIST + '#EXT-X-KEY:METHOD=AES-128,URI="{}/key"\n#EXTINF:1,\na.ts\n#EXT-X-ENDLIST\n',
    "redirect": LIST + "#EXTINF:1,\nto/{}/a.ts\n#EXT-X-ENDLIST\n",
    "later-segment": LIST + "#EXTINF:1,\na.ts\n#EXTINF:1,\n{}/a.ts\n#EXT-X-ENDLIST\n",
}


class WebCameras(NetworkTest):
    def setUp(self):
        super().setUp()
        self.server = web_camera(self, self.folder, **PARTS, **{name: {"count": 4, "after": after} for name, (after, _) in BREAKS.items()})

    @unittest.skipUnless(program.VIDEO.exists(), "needs the sample video")
    def test_http_is_as_good_as_the_file(self):
        (self.folder / program.VIDEO.name).symlink_to(program.VIDEO)
        learned = []
        for uri in (f"{self.server.url}/{program.VIDEO.name}", str(program.VIDEO)):
            report, _ = self.learn_frames(50, uri, source={"pace": "asap", "drop": "never"})
            learned.append((report["loss"], program.tensors_of(self.folder / "out.safetensors")))
        self.assertEqual(*learned)

    def test_a_page_that_is_not_there(self):
        self.assert_not_there(f"{self.server.url}/none.avi")
        for path, why in (("/to/http://127.0.0.1:1/x", "its redirect to http://127.0.0.1:1/x cannot be read"),
                          (25 * "/to/", "it is redirected too often, at last to ")):
            self.assert_refuses("run", {"source": {"uri": self.server.url + path}}, why, code=program.NO_SOURCE)

    def encode(self, name, *options):
        subprocess.run(["ffmpeg", "-v", "error", *MOVING, *options, str(self.folder / name)], check=True)

    @program.each(*PARTS)
    def test_pictures_are_known_by_their_bytes(self, name):
        self.learn_frames(8, f"{self.server.url}/{name}", source={"width": 0, "height": 0})

    def test_a_camera_that_freezes_or_would_fill_the_memory_is_opened_again(self):
        self.assertIn("live       yes\n", self.succeed("inspect", f"{self.server.url}/plain").out)
        for name, (_, why) in BREAKS.items():
            with self.subTest(name):
                config = self.write(program.small(f"{self.server.url}/{name}", source={"max_pixels": 64 * 48}))
                _, outcome = self.reported("run", config, "--frames", 8, trained=8)
                self.assertRegex(outcome.err, f"\nsource: away: .*{why}.*\n(.*\n)*source: back")

    def test_files_of_web_servers(self):
        for name, options in FILES.items():
            self.encode(name, *options)
            for way in ("", "/to/"):
                with self.subTest(name, way=way):
                    self.learn(program.small(self.server.url + way + "/" + name), trained=20)

    def test_playlists_stay_where_they_are(self):
        self.encode("a.ts")
        for name, text in (("good", LIST + "#EXTINF:1,\na.ts\n#EXT-X-ENDLIST\n"), ("best", MASTER + "good.m3u8\n")):
            (self.folder / f"{name}.m3u8").write_text(text)
        self.learn_frames(20, f"{self.server.url}/best.m3u8")
        (self.folder / "live.m3u8").write_text(LIST + "#EXTINF:1,\na.ts\n")
        for name, live in (("good", "no"), ("live", "yes")):
            self.assertIn(f"live       {live}\n", self.succeed("inspect", f"{self.server.url}/{name}.m3u8").out)
        self.encode("slow.ts", "-vf", "setpts=5*PTS", "-r", "5")
        (self.folder / "live.m3u8").write_text(LIST + "#EXTINF:4,\nslow.ts\n")
        report, _ = self.learn_frames(10, f"{self.server.url}/live.m3u8", source={"pace": "auto", "drop": "auto"})
        self.assertLess(report["frames"]["dropped"], 10, "a part has many frames, each with its own time")
        other = web_camera(self, self.folder)
        for name, text in ELSEWHERE.items():
            for where in (other.url, f"file://{self.folder}"):
                with self.subTest(name, where=where):
                    (self.folder / "list.m3u8").write_text(text.format(where))
                    outcome = program.call("run", self.write(program.small(f"{self.server.url}/list.m3u8")), "--quiet")
                    self.assertIn(outcome.code, (program.FAILED, program.NO_SOURCE), outcome)
                    self.assert_one_error(outcome, "not followed")
        self.assertEqual(other.asked, [])
        (self.folder / "list.avi").write_text(LIST + "#EXTINF:1,\na.ts\n#EXT-X-ENDLIST\n")
        self.assert_refused(program.NO_SOURCE, program.call("run", self.folder / "list.avi"), "not followed")


@needs_rtsp
class RtspCamera(NetworkTest):
    def setUp(self):
        super().setUp()
        self.camera = Camera(self)
        self.uri = self.camera.uri

    @unittest.skipIf("ASAN_OPTIONS" in os.environ, "an hour under a sanitizer")
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

    def test_inspect_tells_what_it_is_and_that_a_stream_is_not_there(self):
        outcome = self.succeed("inspect", f"{self.uri}/ball")
        self.assertIn("64x48", outcome.out)
        self.assertIn("live       yes", outcome.out)
        self.assert_not_there(f"{self.uri}/none")

    def test_streams_of_real_cameras(self):
        ball = "videotestsrc is-live=true pattern=ball ! video/x-raw,format=I420,width=64,height=48,framerate=25/1"
        coded = " ! openh264enc gop-size=25 ! h264parse ! rtph264pay pt=96"
        for name, launch in {"numbers-that-wrap": ball + coded + " seqnum-offset=65500 timestamp-offset=4294900000",
                             "wide-pixels": ball + ",pixel-aspect-ratio=2/1" + coded}.items():
            with self.subTest(name):
                report, _ = self.learn_frames(50, Camera(self, f"launch={launch}").uri + "/other")
                self.assertEqual(report["source"]["breaks"], 0)
        with self.subTest("an end"):
            report, _ = self.learn_frames(80, Camera(self, f"launch={ball.replace(' ! ', ' num-buffers=60 ! ', 1) + coded}").uri + "/other")
            self.assertGreaterEqual(report["source"]["reconnects"], 1)

    def start(self, uri, **tables):
        """A run that has trained frames of that source."""
        config = self.write(program.small(uri, checkpoint={"dir": self.folder, "every": 5}, **tables))
        process = self.ends(program.start("run", config, "--report", self.folder / "report.json"))
        self.wait_for_checkpoint(process, after=time.time())
        return process

    def wait_for_checkpoint(self, process, after):
        """Weights were written after that time, so frames are trained."""
        file = self.folder / NEWEST
        self.wait_until(lambda: file.exists() and file.stat().st_mtime > after, "no frame is trained", process)

    @program.each(("tcp", "ball", True, True), ("udp", "keys", True, True), ("udp", "keys", False, True),
                  ("tcp", "ball", False, False), ("tcp", "ball", True, False))
    def test_killed_or_frozen_it_is_waited_for_and_back_with_another_size_learned_from(self, way, path, killed, back):
        camera = Camera(self, way)
        process = self.start(f"{camera.uri}/{path}")
        camera.stop() if killed else camera.process.send_signal(signal.SIGSTOP)
        told = self.read_until(process, "source: away")
        self.assertNotIn("@", told)
        self.assertIn("" if killed else "no picture for 2.5 s", told)
        if back:
            gone = time.time()
            Camera(self, way, "large", port=camera.port) if killed else camera.process.send_signal(signal.SIGCONT)
            self.read_until(process, "source: back")
            self.wait_for_checkpoint(process, after=gone)
        self.stop(process)
        source = self.report()["source"]
        self.assertEqual((source["reconnects"] > 0, source["lost_upstream"] > 0, source["connected"]), (back,) * 3)

    def test_a_second_stream_that_is_away_is_told(self):
        process = self.start("gst:videotestsrc is-live=true ! video/x-raw,width=64,height=48",
                             task={"kind": "stream", "stream": f"{self.uri}/ball"})
        self.camera.stop()
        self.assertIn("no targets come", self.read_until(process, "task.stream: away"))
        self.stop(process)

    def test_without_reconnecting_a_break_ends_the_run(self):
        process = self.start(f"{self.uri}/ball", source={"reconnect": False})
        self.camera.stop()
        process.communicate(timeout=120)
        self.assertIn(process.returncode, (program.DONE, program.FAILED))
        self.assertGreater(self.report()["frames"]["trained"], 0)
