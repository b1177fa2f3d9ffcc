"""What README.md and demos/README.md show: each command and its output, the notebook, the teacher and its student."""

import json
import os
import re
import shutil
import sys
import unittest

import matplotlib
import numpy
from matplotlib import image

import program

DEMOS = program.ROOT / "demos"
STREAM = "synth:shapes?frames=150"
SMALL = program.sets(f"source.uri={STREAM}", "source.width=48", "source.height=32")


def commands(text):
    """(command, the lines that it prints) of each that a page shows, in order."""
    shown = []
    for line in re.findall(r"^    (.+)", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M):
        if line.startswith(("build/release/millrace ", "tools/")):
            shown.append((line.partition("#")[0].strip(), []))
        else:
            shown[-1][1].append(line)
    return shown


class Gallery(program.CliTest):
    @unittest.skipUnless(program.VIDEO.exists() and shutil.which("gst-launch-1.0"), "no street scene or no GStreamer")
    def test_every_command_prints_what_is_shown(self):
        text = (program.ROOT / "README.md").read_text()
        (self.folder / "clip.mp4").symlink_to(program.VIDEO)
        (self.folder / "demos").symlink_to(DEMOS)
        config = re.search(r"^```toml\n(.*?)^```", text, re.M | re.S)[1]
        (self.folder / "my.toml").write_text(config.replace("v4l2:///dev/video0", "clip.mp4"))
        for command, lines in commands(text):
            with self.subTest(command):
                name, *words = command.split()
                if name.startswith("tools/"):  # they build everything, or run this
                    self.assertTrue(os.access(program.ROOT / name, os.X_OK))
                    continue
                if words[0] == "run":
                    words += ["--frames", 430 if "demos/" in command else 30]
                said = program.output_of(program.MILLRACE, *[{"--serve": "--serve=127.0.0.1:0"}.get(word, word) for word in words], cwd=self.folder)
                for line in lines:
                    self.assertIn(line, re.sub(r"(?<=127.0.0.1:)\d+", "8080", said).splitlines())
        code = re.search(r"^```python\n(.*?)^```", text, re.M | re.S)[1]
        code = code.replace("clip.mp4", STREAM)
        self.assertEqual(set(program.output_of(sys.executable, "-c", code, cwd=self.folder).split()), {"0.0"})
        self.assertEqual((self.folder / "pipeline.svg").read_bytes(), (program.ROOT / "docs/pipeline.svg").read_bytes())
        self.assertEqual(len(list(self.folder.glob("out/unexpected/*-event-1-frame-*.png"))), 1)
        self.assertLessEqual(len(text.splitlines()), 120)

    def test_the_notebook_learns(self):
        matplotlib.use("Agg")
        cells = json.loads((DEMOS / "notebook/street.ipynb").read_text())["cells"]
        names = {}
        for cell in cells:
            if cell["cell_type"] == "code":
                self.assertIsNotNone(cell["execution_count"], "readers see what it gives")
                exec("".join(cell["source"]), names)  # pylint: disable=exec-used
                if "STREET" in names:
                    names["STREET"] = STREAM
        self.assertEqual(len(names["losses"]), 149)
        self.assertGreater(names["copy"], names["report"]["loss"]["recent"])

    def test_after_a_change_of_scene_the_one_that_learns_is_ahead(self):
        picture = self.folder / "drift.png"
        said = program.output_of(sys.executable, DEMOS / "drift/drift.py", 60, picture, env={"MPLBACKEND": "Agg"})
        self.assertEqual(image.imread(picture).shape[1], 1080)
        rows = re.findall(r"^([AB], (?:first|last) 20) +([0-9.]+) +([0-9.]+) +([0-9.]+)$", said, re.M)
        self.assertEqual([row[0] for row in rows], ["A, last 20", "B, first 20", "B, last 20", "A, first 20", "A, last 20"], said)
        self.assertLess(float(rows[2][1]), float(rows[2][2]))

    def test_a_teacher_teaches_and_the_student_leaves_as_onnx(self):
        def call(*command):
            return program.output_of(*command, cwd=self.folder, env={"MPLBACKEND": "Agg"})

        out = self.folder / "out/teacher"
        out.mkdir(parents=True)
        call(sys.executable, "-m", "millrace.export", f"{DEMOS}/teacher/teacher.py:make", "-o", out / "teacher.pt")
        self.assertIn("150 trained", call(program.MILLRACE, "run", DEMOS / "teacher/teacher.toml", *SMALL))
        call(program.MILLRACE, "export", out / "student.safetensors", "--onnx", out / "student.onnx")
        image.imsave(out / "frame.png", numpy.full((32, 48, 3), 0.5))
        call(sys.executable, DEMOS / "teacher/draw.py", out / "frame.png", out / "teacher.png")
        self.assertEqual(image.imread(out / "teacher.png").shape[1], 720)
