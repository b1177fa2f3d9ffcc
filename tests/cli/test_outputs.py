"""Where results go is checked before anything is learned, so that a typing error costs no night and no file."""

import os
import subprocess

from safetensors.torch import load_file

import program
from keeping import NEWEST


class Outputs(program.CliTest):
    def refused(self, *parts, uri="synth:shapes?frames=3", options=(), **tables):
        """Both `check` and `run` refuse it, before a frame is learned from."""
        file = self.write(program.small(uri, **tables))
        for outcome in program.call_all([("check", file), ("run", file, *options)][bool(options):]):
            self.assert_refused(program.BAD_USAGE, outcome, *parts)

    def test_where_nothing_can_be_written(self):
        (self.folder / "file").write_text("no folder")
        (self.folder / "folder.png").mkdir()
        for key, ending in (("report", ".json"), ("weights", ".safetensors"), ("loss_plot", ".png"), ("prediction", ".png"),
                            ("log", ""), ("video", ".mp4")):
            for path in (f"/proc/foo/file{ending}", self.folder / "file" / f"out{ending}"):
                with self.subTest(key=key, path=path):
                    self.refused(f"output.{key}", path, output={key: path})
        (self.folder / "loop").symlink_to("loop")
        for path in ("x" * 300, "x" * 250, f"{'x' * 300}/file", "loop"):
            self.refused("output.report", path, output={"report": self.folder / path})
        (self.folder / "loop").unlink()
        for key in ("report", "loss_plot", "prediction", "log"):
            self.refused(f"output.{key}", "folder.png", output={key: self.folder / "folder.png"})
        self.refused("novelty.snapshots", "/proc/foo", novelty={"snapshots": "/proc/foo"})
        self.refused("checkpoint.dir", "/proc/foo", checkpoint={"dir": "/proc/foo"})
        self.assertEqual(sorted(os.listdir(self.folder)), ["config.toml", "file", "folder.png"])

    def test_endings_of_other_formats(self):
        for key, path, part in (("prediction", "p.gif", "FILE.png"), ("loss_plot", "l.jpg", "FILE.png"),
                                ("video", "v.avi", "FILE.mp4"), ("weights", "w.pt", "FILE.safetensors"),
                                ("weights", "w.json", "FILE.safetensors"),
                                ("video", "rtsp://127.0.0.1:99999/x", "65535"),
                                ("video", "rtsp://0.0.0.0:8554/x", "rtsp://USER:PASSWORD@0.0.0.0")):
            with self.subTest(path):
                self.refused(f"output.{key}", part, output={key: path if "://" in path else self.folder / path})

    def test_no_output_replaces_an_input(self):
        video = self.folder / "clip.mp4"
        video.write_bytes(bytes(100))
        os.link(video, self.folder / "hard.mp4")
        (self.folder / "soft.mp4").symlink_to(video)
        for name in ("clip.mp4", "hard.mp4", "soft.mp4", f"../{self.folder.name}/clip.mp4"):
            for key in ("video", "log"):
                with self.subTest(name=name, key=key):
                    self.refused(f"output.{key}", "is the file of source.uri", uri=str(video), output={key: self.folder / name})
        uri = program.write_frames(self.folder / "frames", program.random_frames(seed=1, count=2, channels=3))
        self.refused("output.prediction", "is a picture of source.uri", uri=uri, output={"prediction": sorted((self.folder / "frames").iterdir())[1]})
        config = self.folder / "config.toml"
        self.refused("output.report", "is the file of the config", options=("--report", config))
        self.refused("--trace", "is the file of the config", options=("--trace", config))
        self.refused("/proc/nowhere/trace.json", options=("--trace", "/proc/nowhere/trace.json"))
        self.assertEqual(video.read_bytes(), bytes(100))

    def test_no_command_replaces_what_it_reads(self):
        self.learn(program.small("synth:shapes?frames=3"))
        config, report, weights = (self.folder / name for name in ("config.toml", "report.json", "out.safetensors"))
        before = [file.read_bytes() for file in (config, report, weights)]
        self.assert_each_refused((words, words[-1]) for words in (
            ("evaluate", weights, "synth:shapes?frames=3", "--report", weights), ("export", weights, "--onnx", weights),
            ("profile", config, "--json", config), ("plan", config, "--json", config), ("compare", report, "--plot", report),
            ("simulate", "partime", "--profile", report, "--svg", report)))
        self.assertEqual([file.read_bytes() for file in (config, report, weights)], before)

    def test_each_output_is_a_file_of_its_own(self):
        self.refused("output.prediction", "is the file of output.loss_plot", output={"loss_plot": "-", "prediction": "-"})
        one = self.folder / "one"
        self.refused("output.weights", "is the file of output.report", output={"weights": one, "report": one})
        (self.folder / "dangling").symlink_to(one)
        self.refused("output.weights", "is the file of output.report",
                     output={"weights": one, "report": self.folder / "dangling"})
        self.refused("output.weights", "is the file of checkpoint.dir", checkpoint={"dir": self.folder},
                     output={"weights": self.folder / NEWEST})
        nowhere = {"report": "/dev/null", "weights": "/dev/null"}
        self.learn(program.small("synth:shapes?frames=3", output={**nowhere, "weights": one}), "--set", "output.log=/dev/null")
        # Going on where an earlier run ended is no mistake.
        self.learn(program.small("synth:shapes?frames=3", model={"weights": one}, output={"weights": one}))

    def test_prediction_beside_input_is_a_video(self):
        uri = program.write_frames(self.folder / "frames", program.random_frames(1, 30, height=32, width=48))
        for name in ("out.mkv", "out.mp4"):
            with self.subTest(name):
                report, _ = self.learn(program.small(uri, source={"width": 48, "height": 32}, output={"video": self.folder / name}))
                self.assertEqual(report["video"]["written"] + report["video"]["dropped"], 30)
                self.assertIn("96x32", self.succeed("inspect", self.folder / name).out)

    def test_without_standard_streams_no_file_takes_their_place(self):
        tables = program.small("synth:shapes?frames=60", source={"pace": "live", "fps": 10.0},
                               checkpoint={"dir": self.folder / "kept", "every": 1},
                               output={"log": self.folder / "log.jsonl", "log_every": 1})
        done = subprocess.run(["bash", "-c", 'exec "$0" run "$1" <&- >&- 2>&-', program.MILLRACE, self.write(tables)], timeout=120)
        self.assertEqual(done.returncode, program.DONE)
        lines = (self.folder / "log.jsonl").read_text().splitlines()
        self.assertEqual([line for line in lines if not line.startswith('{"frame"')], [])
        load_file(self.folder / "kept" / NEWEST)
