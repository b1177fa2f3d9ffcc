"""Wheels, by `pip wheel .` and by tools/package, do all that they promise where the tree and GStreamer are out of sight."""

import importlib.util
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from PIL import Image

from program import LONG, MILLRACE, ROOT, VIDEO, output_of, sets

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
SMALL = sets("source.width=32", "source.height=24")
LEARN = """
import millrace, torch
net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(4, 3, 3, padding=1))
trainer = millrace.Trainer(net, schedule="partime", stages=2, cut=[2], optimizer={"kind": "sgd", "lr": 0.1})
print(millrace.__file__, sum(1 for _ in trainer.run(torch.rand(20, 3, 8, 8))))
print(sum(1 for _, results in zip(range(5), millrace.watch(%r, width=16, height=12))))
"""


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.site = cls.folder / "site"
        # The name that the other builds compile with, so that the compiler's cache serves this one.
        output_of(*PIP, "wheel", ROOT, "--no-deps", "-w", cls.folder, env={"CXX": "/usr/bin/c++"})
        wheel, = cls.folder.glob("millrace-*.whl")
        output_of(*PIP, "install", "--no-deps", "--target", cls.site, wheel, "av", "pillow")
        for beside in ("torch", "nvidia"):
            (cls.site / beside).symlink_to(Path(importlib.util.find_spec(beside).submodule_search_locations[0]))
        (cls.site / "millrace/libmillrace_gstreamer.so").unlink()  # as on a system without

    def millrace(self, *arguments, options=(), path=None):
        return subprocess.run([sys.executable, "-P", *options, "-m", "millrace", *map(str, arguments)], cwd=self.folder,
                              capture_output=True, text=True, env={"PYTHONPATH": str(path or self.site)})

    def assert_fails(self, code, says, outcome):
        self.assertEqual((outcome.returncode, outcome.stderr.count("\n")), (code, 1), outcome.stderr)
        self.assertRegex(outcome.stderr, says)

    def test_it_learns_from_modules_and_watches_files(self):
        where, learned, watched = output_of(sys.executable, "-P", "-c", LEARN % str(VIDEO), cwd=self.folder,
                                            env={"PYTHONPATH": str(self.site)}).split()[-3:]
        self.assertTrue(where.startswith(str(self.site)), where)
        self.assertEqual((learned, watched), ("20", "5"))

    def test_the_demo_and_a_video_run_to_their_ends(self):
        demo = self.millrace("demo", "--frames", 430)
        self.assertEqual(demo.returncode, 0, demo.stderr)
        self.assertIn("unexpected: since frame 400", demo.stderr)
        self.assertEqual(len(list((self.folder / "millrace-demo").glob("*.png"))), 1)
        whole = self.millrace("run", VIDEO, *SMALL)
        self.assertIn("795 received = 794 trained + 0 dropped + 1 rejected", whole.stdout, whole.stderr)

    def test_pictures_are_those_of_the_other_builds(self):
        pictures = self.folder / "pictures"
        pictures.mkdir()
        for n in range(6):
            grey = [Image.effect_noise((32, 24), 30 * k + 20 * n) for k in (1, 2, 3)]
            picture = Image.merge("RGB", grey) if n % 2 else grey[0]
            exif = picture.getexif()
            exif[0x0112] = 1 if n < 3 else 3  # upside down
            picture.save(pictures / f"{n}.{('png', 'jpg')[n % 2]}", exif=exif)
        losses = []
        for call in ((MILLRACE,), (sys.executable, "-P", "-m", "millrace")):
            report = self.folder / "report.json"
            output_of(*call, "run", "--set", f"source.uri=images:{pictures}", *SMALL,
                      "--set", "pipeline.stages=1", "--report", report, cwd=self.folder,
                      env={"PYTHONPATH": str(self.site)})
            losses.append(json.loads(report.read_text())["loss"]["mean"])
        self.assertEqual(*losses)

    def test_what_is_missing_is_said_in_a_line(self):
        (self.folder / "broken.mp4").write_bytes(b"no video" * 100)
        self.assert_fails(3, "broken.mp4: FFmpeg cannot read it", self.millrace("run", "broken.mp4"))
        self.assert_fails(3, r"GStreamer is missing \(.*\); on Debian: apt install", self.millrace("run", "rtsp://127.0.0.1:9/x"))
        alone = self.folder / "alone"  # with no PyTorch
        alone.mkdir()
        for part in self.site.glob("millrace*"):
            (alone / part.name).symlink_to(part)
        self.assert_fails(1, "millrace needs torch 2.*, there is none: .* install torch==2", self.millrace("check", options=["-S"], path=alone))
        other = self.folder / "other/torch-1.0.dist-info"
        other.mkdir(parents=True)
        (other / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.0\n")
        self.assert_fails(1, "millrace needs torch 2.*, this one is 1.0", self.millrace("check", path=f"{other.parent}:{self.site}"))

    @unittest.skipUnless(LONG, "packs the libraries: a minute")
    def test_a_packaged_wheel_is_small_and_needs_no_library_of_this_system(self):
        own = ("millrace.libs/", "/torch/", "/nvidia/", "libstdc++", "libgcc_s", "linux-vdso", "libz.so", "libexpat.so",
               "libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so", "libresolv.so", "ld-linux", "libutil.so", "libnuma", "libgomp")
        output_of(ROOT / "tools/package", "wheel", self.folder / "packaged")
        wheel, = (self.folder / "packaged").glob("millrace-*-manylinux_*.whl")
        self.assertLess(wheel.stat().st_size, 40e6)
        output_of(*PIP, "install", "--no-deps", "--upgrade", "--target", self.site, wheel)
        for binary in ("millrace", "libmillrace_codecs.so", *(path.name for path in self.site.glob("millrace/_millrace*.so"))):
            needed = output_of("ldd", self.site / "millrace" / binary)
            self.assertEqual([line for line in needed.splitlines() if not any(name in line for name in own)], [])
        self.assertIn("20 received = 19 trained", output_of(self.site / "bin/millrace", "run", VIDEO, *SMALL, "--frames", 20,
                                                            cwd=self.folder, env={"PYTHONPATH": str(self.site)}))
