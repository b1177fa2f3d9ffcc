"""Wheels, by `pip install .` and by tools/package, learn where the tree is out of sight."""

import importlib.util
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from program import LONG, ROOT, output_of

LEARN = """
import millrace, torch
net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(4, 3, 3, padding=1))
trainer = millrace.Trainer(net, schedule="partime", stages=2, cut=[2], optimizer={"kind": "sgd", "lr": 0.1})
print(millrace.__file__, sum(1 for _ in trainer.run(torch.rand(20, 3, 8, 8))))
"""


class Wheel(unittest.TestCase):
    def test_a_wheel_learns_where_it_is_installed(self):
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
        with tempfile.TemporaryDirectory() as folder:
            # The name that the other builds compile with, so that the compiler's cache serves this
            # one.
            output_of(*pip, "wheel", ROOT, "--no-deps", "-w", folder, env={"CXX": "/usr/bin/c++"})
            wheel, = Path(folder).glob("millrace-*.whl")
            site = Path(folder) / "site"
            output_of(*pip, "install", "--no-deps", "--target", site, wheel)
            where, learned = output_of(sys.executable, "-P", "-c", LEARN, cwd=folder,
                                       env={"PYTHONPATH": str(site)}).split()[-2:]
            self.assertTrue(where.startswith(str(site)), where)
            self.assertEqual(learned, "20")

    @unittest.skipUnless(LONG, "minutes: OpenCV is compiled")
    def test_a_packaged_wheel_needs_no_library_of_this_system(self):
        own = ("millrace.libs/", "/torch/", "/nvidia/", "libgst", "libglib", "libgobject", "libstdc++", "libgcc_s", "linux-vdso", "libz.so",
               "libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so", "libresolv.so", "ld-linux", "libutil.so", "libnuma", "libgomp")
        with tempfile.TemporaryDirectory() as folder:
            output_of(ROOT / "tools/package", "wheel", folder)
            wheel, = Path(folder).glob("millrace-*-manylinux_*.whl")
            # Beside LibTorch, as site-packages are.
            site = Path(folder) / "site"
            for beside in ("torch", "nvidia"):
                (site / beside).parent.mkdir(exist_ok=True)
                (site / beside).symlink_to(Path(importlib.util.find_spec(beside).submodule_search_locations[0]))
            output_of(sys.executable, "-m", "pip", "-q", "install", "--no-deps", "--target", site, wheel)
            needed = output_of("ldd", site / "millrace/plain/millrace")
            foreign = [line for line in needed.splitlines() if not any(name in line for name in own)]
            self.assertEqual(foreign, [])
            where = {"PYTHONPATH": str(site)}
            for started in ((site / "millrace/plain/millrace",), (sys.executable, site / "bin/millrace")):
                out = output_of(*started, "run", "--set", "source.uri=synth:shapes?frames=20", "--set", "source.width=16",
                                "--set", "source.height=16", cwd=folder, env=where)
                self.assertIn("20 received = 19 trained", out)
            camera = subprocess.run([site / "millrace/plain/millrace", "run", "rtsp://127.0.0.1:9/x"], capture_output=True, text=True)
            self.assertEqual((camera.returncode, camera.stderr.count("\n")), (3, 1))
            self.assertIn("GStreamer is missing; on Debian: apt install", camera.stderr)
            self.assertIn("/gstreamer/_millrace", output_of(sys.executable, "-P", "-c", "import millrace; print(millrace._millrace.__file__)",
                                                            cwd=folder, env=where))
