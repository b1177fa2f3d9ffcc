"""Sources that cannot be opened, that break off, or that are not as the config expects."""

import os
import unittest

from safetensors.torch import load_file

import program

SECRET = "hunter2"


class Sources(program.CliTest):
    def config(self, uri, **source):
        return program.small(uri, source=source)

    def frames(self, name, *args, **kwargs):
        return program.write_frames(self.folder / name, program.random_frames(*args, **kwargs))

    def test_what_cannot_be_opened(self):
        for folder, name, data in (("empty", None, b""), (".", "text.avi", b"to be or not to be\n" * 200),
                                   (".", "empty.avi", b""), (".", "zeros.mp4", bytes(9999)),
                                   ("frames", "00000.png", b"\x89PNG\r\n\x1a\nand then nothing")):
            (self.folder / folder).mkdir(exist_ok=True)
            if name:
                (self.folder / folder / name).write_bytes(data)
        here = f"file://{self.folder}"
        uris = (f"{here}/none.avi", f"{self.folder}/none.avi", f"{here}/text.avi", f"{here}/empty.avi", f"{here}/zeros.mp4",
                f"{here}/", f"images:{self.folder}/none", f"images:{self.folder}/%05d.png", f"images:{self.folder}/empty",
                f"images:{self.folder}/frames", "v4l2:///dev/video4095", "http://127.0.0.1:1/x.mp4", "gst:nosuchelement ! fakesink",
                "synth:circles")
        calls = [(("run", "--quiet", *program.settings(self.config(uri))), uri) for uri in uris] + [(("inspect", uris[0]), uris[0])]
        self.assert_each_refused(((call, uri.split("//")[-1]) for call, uri in calls), code=program.NO_SOURCE)

    @program.each(("empty.mp4", b"", "the file is empty"), ("text.avi", b"x = 1\n", "text.avi"),
                  ("none.mp4", None, "no such file"), ("two\nlines.avi", b"", "two?lines.avi: the file is empty"))
    def test_a_recording_is_no_config_whatever_it_holds(self, name, data, part):
        if data is not None:
            (self.folder / name).write_bytes(data)
        self.assert_refused(program.NO_SOURCE, program.call("run", self.folder / name, "--frames", "3"), part)

    def test_a_region_outside_the_picture(self):
        uri = self.frames("frames", 1, 2)
        outcome = program.call("run", "--quiet", *program.settings(self.config(uri, roi=[20, 0, 8, 8])))
        self.assert_refused(program.BAD_USAGE, outcome, "source.roi", "24x16")

    def test_nothing_is_written(self):
        output = {"report": self.folder / "report.json", "weights": self.folder / "weights.safetensors"}
        self.assert_refuses("run", {**self.config("/is/not/there"), "output": output}, code=program.NO_SOURCE)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["config.toml"])

    def check_silence(self, code, *args):
        outcome = program.call(*args)
        self.assert_code(code, outcome)
        self.assertNotIn(SECRET, outcome.out + outcome.err)
        return outcome

    def test_credentials_are_hidden_in_every_message(self):
        uri = f"rtsp://user:{SECRET}@127.0.0.1:1/x"
        pipeline = f"gst:rtspsrc location=rtsp://127.0.0.1:1/x user-id=user user-pw={SECRET} ! decodebin"
        for args in (["run", self.write(self.config(uri))], ["inspect", uri]):
            with self.subTest(args=args):
                self.assert_one_error(self.check_silence(program.NO_SOURCE, *args), "127.0.0.1:1/x")
        self.check_silence(program.NO_SOURCE, "inspect", pipeline)
        self.assertIn("127.0.0.1:1/x", self.check_silence(program.DONE, "check", "--set", f"source.uri={uri}").out)
        for setting in (f'source.uri=["{uri}"]', f"source.pace={uri}", f"sourceuri={uri}", uri):
            with self.subTest(setting=setting):
                self.check_silence(program.BAD_USAGE, "check", "--set", setting)

    @unittest.skipUnless(program.VIDEO.exists(), "needs the sample video")
    def test_a_truncated_video(self):
        cut = self.folder / "cut.avi"
        whole = program.VIDEO.read_bytes()
        cut.write_bytes(whole[:len(whole) * 2 // 5])
        # A dead unit or an event would be a second line on stderr.
        config = program.small(f"file://{cut}", model={"activation": "leaky-relu"}, novelty={"reasons": []})
        report, outcome = self.learn(config, code=program.FAILED)
        self.assert_one_error(outcome, "cut.avi")
        self.assertGreater(report["frames"]["trained"], 100)  # all that came
        self.assertLess(report["frames"]["received"], 500)
        weights = load_file(self.folder / "out.safetensors")
        self.assertEqual(weights.keys(), {"0.weight", "0.bias", "2.weight", "2.bias"})

    @program.each(("autoencode", "asap", 9, 0), ("next-frame", "asap", 7, 2), ("next-frame", "live", 7, 2))
    def test_a_corrupt_picture_is_rejected(self, task, pace, trained, untold):
        uri = self.frames("frames", 1, 10)
        path = self.folder / "frames" / "00005.png"
        path.write_bytes(path.read_bytes()[:40])
        report, outcome = self.learn({**self.config(uri, pace=pace, drop="never", fps=50), "task": {"kind": task}})
        self.assertEqual(outcome.err, f"source: {path}: cannot be decoded\n")
        self.assertEqual(report["task"]["without_target"], untold)
        self.assertEqual(report["frames"], {"received": 10, "trained": trained, "dropped": 0,
                                            "rejected": 10 - trained, "in_flight": 0})

    def test_a_distortion_is_reported_and_fit_avoids_it(self):
        uri = self.frames("frames", 2, 6)
        config = self.write(self.config(uri, width=16, height=16))
        squashed, cropped = program.call_all([("run", config), ("run", config, "--set", "source.fit=crop")])
        self.assertIn("frames of 24x16 are squashed to 16x16", squashed.err)
        self.assertNotIn("squashed", cropped.err)

    def test_rate(self):
        uri = self.frames("frames", 5, 3)
        for tables, rate in (({}, 25.0), ({"source": {"fps": 12.5}}, 12.5), ({"monitor": {"fps": 30.0}}, 30.0)):
            report, _ = self.learn(program.small(uri, **tables))
            self.assertEqual(report["realtime"]["F"], rate)

    def test_devices_versions_videos_and_pictures(self):
        for args, parts in (((), ("libtorch", "cuda", "gstreamer", "opencv", "cpu:0")),
                            ((self.frames("frames", 6, 3),), ("24x16",)), (("synth:shapes",), ("128x96",)),
                            ((program.VIDEO,), ("768x576", "10 frames", "gstreamer"))):
            if program.VIDEO in args and not program.VIDEO.exists():
                continue
            with self.subTest(args):
                outcome = self.succeed("inspect", *args)
                for part in parts:
                    self.assertIn(part, outcome.out)

    def test_a_video_or_uri_just_runs(self):
        odd = os.fsencode(self.folder) + b"/caf\xe9\n#.avi"  # no UTF-8
        os.symlink(program.VIDEO, odd)
        for source in (program.VIDEO, os.fsdecode(odd), "synth:shapes"):
            outcome = self.succeed("run", source, "--frames", 3, "--set", "source.width=16", "--set", "source.height=16")
            self.assertIn("3 trained", outcome.out)
