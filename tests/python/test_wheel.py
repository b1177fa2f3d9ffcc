"""The wheel that `pip install .` makes learns where the tree is out of sight."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

LEARN = """
import millrace, torch
net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(4, 3, 3, padding=1))
trainer = millrace.Trainer(net, schedule="partime", stages=2, cut=[2], optimizer={"kind": "sgd", "lr": 0.1})
print(millrace.__file__, sum(1 for _ in trainer.run(torch.rand(20, 3, 8, 8))))
"""


class Wheel(unittest.TestCase):

    def call(self, *command, **settings):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **settings)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_a_wheel_learns_where_it_is_installed(self):
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
        with tempfile.TemporaryDirectory() as folder:
            # By the name that the other builds compile with, so that the compiler's cache serves this one.
            self.call(*pip, "wheel", ROOT, "--no-deps", "-w", folder, env={**os.environ, "CXX": "/usr/bin/c++"})
            wheel, = Path(folder).glob("millrace-*.whl")
            site = Path(folder) / "site"
            self.call(*pip, "install", "--no-deps", "--target", site, wheel)
            where, learned = self.call(sys.executable, "-P", "-c", LEARN, cwd=folder,
                                       env={**os.environ, "PYTHONPATH": str(site)}).split()[-2:]
            self.assertTrue(where.startswith(str(site)), where)
            self.assertEqual(learned, "20")


if __name__ == "__main__":
    unittest.main()
