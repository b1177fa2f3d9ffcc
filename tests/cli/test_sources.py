"""Sources that cannot be opened, that break off, and that are not quite as expected."""

import json
import unittest

from safetensors.torch import load_file

import program

SMALL = {"layers": 2, "features": 2, "kernel": 3}
SECRET = "hunter2"


class SourceTest(program.CliTest):

    def config(self, uri, **source):
        return {"source": {"uri": uri, "width": 24, "height": 16, **source}, "model": SMALL,
                "pipeline": {"cut": [2]}}

    def frames(self, name, *args, **kwargs):
        return program.write_frames(self.folder / name, program.random_frames(*args, **kwargs))


class Refusals(SourceTest):

    def refused(self, *uris):
        """Exit 3, with an error that holds the URI's end at the least."""
        files = [program.write_toml(self.folder / f"config-{number}.toml", self.config(uri))
                 for number, uri in enumerate(uris)]
        outcomes = program.call_all([("run", "--quiet", file) for file in files])
        for uri, outcome in zip(uris, outcomes):
            with self.subTest(uri=uri):
                self.assert_refused(program.NO_SOURCE, outcome, uri.split("//")[-1])
        return outcomes

    def test_what_is_not_there(self):
        self.refused(f"file://{self.folder}/none.avi", f"{self.folder}/none.avi", f"images:{self.folder}/none",
                     f"images:{self.folder}/%05d.png", "v4l2:///dev/video4095", "http://127.0.0.1:1/x.mp4")

    def test_an_empty_folder(self):
        (self.folder / "empty").mkdir()
        self.refused(f"images:{self.folder}/empty")

    def test_what_is_no_video(self):
        (self.folder / "text.avi").write_bytes(b"to be or not to be\n" * 200)
        (self.folder / "empty.avi").write_bytes(b"")
        (self.folder / "zeros.mp4").write_bytes(bytes(9999))
        self.refused(*(f"file://{self.folder}/{name}" for name in ("text.avi", "empty.avi", "zeros.mp4", "")))

    def test_pictures_that_are_none(self):
        folder = self.folder / "frames"
        folder.mkdir()
        (folder / "00000.png").write_bytes(b"\x89PNG\r\n\x1a\nand then nothing")
        self.refused(f"images:{folder}")

    def test_an_unknown_scheme_is_the_configs_fault_and_gets_a_list(self):
        for command in ("run", "check"):
            for uri in ("rtps://host/x", "ftp://host/x"):
                outcome = program.call(command, "--set", f"source.uri={uri}")
                self.assert_refused(program.BAD_USAGE, outcome, "source.uri", uri.split(":")[0], "rtsp", "synth")

    def test_a_region_outside_the_picture(self):
        uri = self.frames("frames", 1, 2)
        outcome = program.call("run", "--quiet", *program.settings(self.config(uri, roi=[20, 0, 8, 8])))
        self.assert_refused(program.BAD_USAGE, outcome, "source.roi", "24x16")

    def test_unknown_synthetic_stream(self):
        outcome, = self.refused("synth:circles")
        self.assertIn("synth:shapes", outcome.err)

    def test_a_bad_pipeline(self):
        self.refused("gst:nosuchelement ! fakesink")

    def test_inspect_refuses_alike(self):
        self.assert_refused(program.NO_SOURCE, program.call("inspect", f"{self.folder}/none.avi"), "none.avi")

    def test_nothing_is_written(self):
        config = self.config("/is/not/there")
        config["output"] = {"report": self.folder / "report.json", "weights": self.folder / "weights.safetensors"}
        outcome = program.call("run", program.write_toml(self.folder / "config.toml", config))
        self.assert_refused(program.NO_SOURCE, outcome)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["config.toml"])


class Secrets(SourceTest):
    """A URI's credentials are never printed, whatever happens to it."""

    def check_silence(self, code, *args):
        outcome = program.call(*args)
        self.assert_code(code, outcome)
        self.assertNotIn(SECRET, outcome.out + outcome.err)
        return outcome

    def test_a_camera_that_cannot_be_reached(self):
        uri = f"rtsp://user:{SECRET}@127.0.0.1:1/x"
        file = program.write_toml(self.folder / "config.toml", self.config(uri))
        for args in (["run", file], ["inspect", uri]):
            with self.subTest(args=args):
                outcome = self.check_silence(program.NO_SOURCE, *args)
                self.assert_one_error(outcome, "127.0.0.1:1/x")

    def test_a_pipeline_with_a_password(self):
        uri = f"gst:rtspsrc location=rtsp://127.0.0.1:1/x user-id=user user-pw={SECRET} ! decodebin"
        self.check_silence(program.NO_SOURCE, "inspect", uri)

    def test_what_check_prints(self):
        outcome = self.check_silence(program.DONE, "check", "--set", f"source.uri=rtsp://user:{SECRET}@host/x")
        self.assertIn("host/x", outcome.out)

    def test_config_errors(self):
        uri = f"rtsp://user:{SECRET}@host/x"
        for setting in (f'source.uri=["{uri}"]', f"source.pace={uri}", f"sourceuri={uri}", uri):
            with self.subTest(setting=setting):
                self.check_silence(program.BAD_USAGE, "check", "--set", setting)


class Videos(SourceTest):

    def setUp(self):
        super().setUp()
        if not program.VIDEO.exists():
            self.skipTest(f"{program.VIDEO} is not there")

    def test_a_whole_video(self):
        report, outcome = self.learn(self.config(f"file://{program.VIDEO}"), "--frames", 20)
        self.assertEqual(report["frames"]["trained"], 20)
        self.assert_balanced(report)
        self.assertEqual(report["realtime"]["F"], 10.0)
        self.assertEqual(outcome.err, "")

    def test_a_truncated_video(self):
        cut = self.folder / "cut.avi"
        whole = program.VIDEO.read_bytes()
        cut.write_bytes(whole[:len(whole) * 2 // 5])
        config = self.config(f"file://{cut}")
        config["model"] = {**SMALL, "activation": "leaky-relu"}  # of two units none may die, which would be told
        report, outcome = self.learn(config, code=program.FAILED)
        self.assert_one_error(outcome, "cut.avi")
        self.assert_balanced(report)
        self.assertGreater(report["frames"]["trained"], 100)  # whatever came was learnt from
        self.assertLess(report["frames"]["received"], 500)
        weights = load_file(self.folder / "out.safetensors")
        self.assertEqual(weights.keys(), {"0.weight", "0.bias", "2.weight", "2.bias"})

    def test_inspect(self):
        outcome = program.call("inspect", program.VIDEO)
        self.assert_code(program.DONE, outcome)
        for part in ("768x576", "10 frames", "gstreamer"):
            self.assertIn(part, outcome.out)


class Pictures(SourceTest):

    def test_a_corrupt_picture_is_rejected(self):
        uri = self.frames("frames", 1, 10)
        path = self.folder / "frames" / "00005.png"
        path.write_bytes(path.read_bytes()[:40])
        # At its own rate a frame is predicted from before anybody knows whether its successor comes.
        for task, pace, trained, untold in (("autoencode", "asap", 9, 0), ("next-frame", "asap", 7, 0),
                                            ("next-frame", "live", 7, 2)):
            with self.subTest(task=task, pace=pace):
                report, outcome = self.learn({**self.config(uri, pace=pace, drop="never", fps=50),
                                              "task": {"kind": task}})
                self.assertEqual(outcome.err, "")
                self.assertEqual(report["task"]["without_target"], untold)
                self.assertEqual(report["frames"], {"received": 10, "trained": trained, "dropped": 0,
                                                    "rejected": 10 - trained, "in_flight": 0})

    def test_varying_sizes_are_rescaled(self):
        for number, (height, width) in enumerate([(16, 24), (32, 48), (9, 100), (1, 1), (16, 24)]):
            program.write_png(self.folder / f"{number}.png", program.random_frames(number, 1, height, width)[0])
        for source in ({}, {"width": 0, "height": 0}, {"width": 0}, {"channels": 1}):
            with self.subTest(source=source):
                report, _ = self.learn(self.config(f"images:{self.folder}", **source))
                self.assertEqual(report["frames"]["trained"], 5)
                self.assert_balanced(report)

    def test_own_size(self):
        # 0x0 is the source's own: exactly as if that size had been asked for.
        uri = self.frames("frames", 2, 6)
        self.learn(self.config(uri))
        given = program.tensors_of(self.folder / "out.safetensors")
        self.learn(self.config(uri, width=0, height=0))
        self.assertEqual(program.tensors_of(self.folder / "out.safetensors"), given)

    def test_a_region_is_learned_from_exactly_as_if_the_camera_showed_no_more(self):
        frames = program.random_frames(2, 6)
        whole = program.write_frames(self.folder / "whole", frames)
        part = program.write_frames(self.folder / "part", frames[:, 4:12, 8:20])
        self.learn(self.config(part, width=12, height=8))
        given = program.tensors_of(self.folder / "out.safetensors")
        for size in ({"width": 12, "height": 8}, {"width": 0, "height": 0}):
            self.learn(self.config(whole, roi=[8, 4, 12, 8], **size))
            self.assertEqual(program.tensors_of(self.folder / "out.safetensors"), given)

    def test_a_shape_that_is_lost_is_said_and_fit_keeps_it(self):
        uri = self.frames("frames", 2, 6)
        config = program.write_toml(self.folder / "square.toml", self.config(uri, width=16, height=16))
        squashed, cropped = program.call_all([("run", config), ("run", config, "--set", "source.fit=crop")])
        self.assertIn("frames of 24x16 are squashed to 16x16", squashed.err)
        self.assertNotIn("squashed", cropped.err)

    def test_folder_glob_and_pattern_are_one_stream(self):
        self.frames("frames", 3, 6)
        folder = f"images:{self.folder}/frames"
        losses = []
        for uri in (folder, folder + "/*.png", folder + "/%05d.png"):
            report, _ = self.learn(self.config(uri))
            losses.append(report["loss"])
        self.assertEqual(losses, losses[:1] * 3)

    def test_loop(self):
        uri = self.frames("frames", 4, 10)
        report, _ = self.learn(self.config(uri, loop=True), "--frames", 25)
        self.assertEqual(report["frames"], {"received": 25, "trained": 25, "dropped": 0, "rejected": 0, "in_flight": 0})

    def test_rate(self):
        uri = self.frames("frames", 5, 3)
        report, _ = self.learn(self.config(uri))
        self.assertEqual(report["realtime"]["F"], 25.0)
        report, _ = self.learn(self.config(uri, fps=12.5))
        self.assertEqual(report["realtime"]["F"], 12.5)
        report, _ = self.learn({**self.config(uri), "monitor": {"fps": 30.0}})
        self.assertEqual(report["realtime"]["F"], 30.0)

    def test_inspect(self):
        outcome = program.call("inspect", self.frames("frames", 6, 3))
        self.assert_code(program.DONE, outcome)
        self.assertIn("24x16", outcome.out)


class Synthetic(SourceTest):

    def losses(self, uri, **source):
        report, _ = self.learn(self.config(uri, **source))
        return json.dumps(report["loss"])

    def test_a_seed_is_a_scene(self):
        first = self.losses("synth:shapes?frames=8", seed=1)
        self.assertEqual(self.losses("synth:shapes?frames=8", seed=1), first)
        self.assertNotEqual(self.losses("synth:shapes?frames=8", seed=2), first)


class Machine(program.CliTest):

    def test_inspect_tells_devices_and_versions(self):
        outcome = program.call("inspect")
        self.assert_code(program.DONE, outcome)
        for part in ("libtorch", "cuda", "gstreamer", "opencv", "cpu:0"):
            self.assertIn(part, outcome.out)


class InPlaceOfAConfig(program.CliTest):

    def test_a_video_or_uri_just_runs(self):
        for source in (program.VIDEO, "synth:shapes"):
            outcome = program.call("run", source, "--frames", 3, "--set", "source.width=16", "--set", "source.height=16")
            self.assert_code(program.DONE, outcome)
            self.assertIn("3 trained", outcome.out)


if __name__ == "__main__":
    unittest.main()
