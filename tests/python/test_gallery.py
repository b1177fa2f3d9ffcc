"""What demos/README.md shows and Python runs: the notebook, the teacher and its student."""

import json
import sys
import tempfile
import unittest
from pathlib import Path

import matplotlib
import numpy
from matplotlib import image

import program

DEMOS = program.ROOT / "demos"
STREAM = "synth:shapes?frames=150"
SMALL = program.sets(f"source.uri={STREAM}", "source.width=48", "source.height=32")


class Gallery(unittest.TestCase):
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

    def test_a_teacher_teaches_and_the_student_leaves_as_onnx(self):
        with tempfile.TemporaryDirectory() as folder:
            def call(*command):
                return program.output_of(*command, cwd=folder, env={"MPLBACKEND": "Agg"})

            out = Path(folder) / "out/teacher"
            out.mkdir(parents=True)
            call(sys.executable, "-m", "millrace.export", f"{DEMOS}/teacher/teacher.py:make", "-o", out / "teacher.pt")
            self.assertIn("150 trained", call(program.MILLRACE, "run", DEMOS / "teacher/teacher.toml", *SMALL))
            call(program.MILLRACE, "export", out / "student.safetensors", "--onnx", out / "student.onnx")
            image.imsave(out / "frame.png", numpy.full((32, 48, 3), 0.5))
            call(sys.executable, DEMOS / "teacher/draw.py", out / "frame.png", out / "teacher.png")
            self.assertEqual(image.imread(out / "teacher.png").shape[1], 720)
