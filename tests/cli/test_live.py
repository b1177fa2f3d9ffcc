"""A camera that breaks off, comes back larger, freezes and thaws: learning continues by itself. Video out."""

import time

import program
from keeping import NEWEST
from servers import Camera, needs_rtsp


@needs_rtsp
class LiveCamera(program.CliTest):

    def learn_from(self, camera):
        """A run that has learned from some frames of it."""
        config = self.write(program.small(f"{camera.uri}/ball", checkpoint={"dir": self.folder, "every": 5}))
        process = self.ends(program.start("run", config, "--report", self.folder / "report.json"))
        self.wait_for_checkpoint(process)
        return process

    def camera(self, *options, **more):
        camera = Camera("tcp", *options, **more)
        self.addCleanup(camera.stop)
        return camera

    def wait_for_checkpoint(self, process, after=0.0):
        """Weights were written after that time, so frames are trained."""
        file = self.folder / NEWEST
        self.wait_until(lambda: file.exists() and file.stat().st_mtime > after, "no frame is trained", process)

    def source_of(self, process):
        """What the report says of the source, after the end."""
        self.stop(process)
        return self.report()["source"]

    def test_killed_and_back_with_another_size(self):
        camera = self.camera()
        process = self.learn_from(camera)
        camera.stop()
        self.assertNotIn("@", self.read_until(process, "source: away"))
        gone = time.time()
        self.camera("large", port=camera.port)
        self.read_until(process, "source: back")
        self.wait_for_checkpoint(process, after=gone)
        source = self.source_of(process)
        self.assertEqual((source["breaks"], source["reconnects"], source["connected"]), (1, 1, True))
        self.assertGreater(source["lost_upstream"], 0)

    def test_stopped_while_the_camera_is_away(self):
        camera = self.camera()
        process = self.learn_from(camera)
        camera.stop()
        self.read_until(process, "source: away")
        self.assertFalse(self.source_of(process)["connected"])
        self.assertGreater(self.report()["frames"]["trained"], 0)


class Video(program.CliTest):

    def config(self, video):
        frames = program.random_frames(1, 30, height=32, width=48)
        uri = program.write_frames(self.folder / "frames", frames)
        return program.small(uri, source={"width": 48, "height": 32}, output={"video": self.folder / video})

    def test_prediction_beside_input_is_a_video(self):
        for name in ("out.mkv", "out.mp4"):
            with self.subTest(name):
                report, _ = self.learn(self.config(name))
                self.assertEqual(report["video"]["written"] + report["video"]["dropped"], 30)
                told = self.succeed("inspect", self.folder / name)
                self.assertIn("96x32", told.out)
