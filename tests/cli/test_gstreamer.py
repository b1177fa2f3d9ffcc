"""The element `millrace` in pipelines of gst-launch-1.0."""

import os
import re
import subprocess
import unittest
from pathlib import Path

import program

PLUGINS = Path(program.MILLRACE).parent / "gst"
# GStreamer's tools can't load an element built with AddressSanitizer.
LOADABLE = PLUGINS.is_dir() and not os.environ.get("PRELOAD_FIRST")
# GStreamer's tools find the built element; their registry lies beside it.
ENVIRONMENT = {**os.environ, "GST_PLUGIN_PATH": str(PLUGINS), "GST_REGISTRY": str(PLUGINS / "registry.bin")}
BALL = "videotestsrc pattern=ball num-buffers=%d ! video/x-raw,format=RGB,width=32,height=24,framerate=25/1"


@unittest.skipUnless(LOADABLE, "a build without GStreamer, or under a sanitizer")
class Element(program.CliTest):
    def gst(self, words, fails=False):
        """What GStreamer's tool says."""
        # gst-launch-1.0 waits for ever if an error comes before its main loop runs: it asks that to quit first. SIGINT ends it.
        interrupt = ["timeout", "--signal=INT", "60"] if fails else []
        done = subprocess.run(interrupt + words.split(), env=ENVIRONMENT, text=True, timeout=120,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode != 0, fails, done.stdout)
        return done.stdout

    def launch(self, options="", sink="fakesink", frames=10, config=None, pictures=BALL, fails=False):
        config = config or self.write(program.bare(program.small(model={"features": 4})))
        return self.gst(f"gst-launch-1.0 {pictures % frames} ! millrace config={config} {options} ! {sink}", fails)

    def test_it_learns_what_run_learns_to_the_bit(self):
        self.assertIn("trained", self.launch(f"weights={self.folder}/gst.safetensors", frames=40))  # run's summary
        options = {"source": {"uri": f"gst:{BALL % 40}", "pace": "asap"}, "output": {"weights": self.folder / "run.safetensors"}}
        self.succeed("run", self.folder / "config.toml", "--quiet", *program.settings(options))
        self.assertEqual(program.tensors_of(self.folder / "gst.safetensors"), program.tensors_of(self.folder / "run.safetensors"))

    def test_pictures_go_on_down_the_pipeline(self):
        for output, width in [("prediction", 24), ("error", 24), ("input-beside", 48)]:
            sink = f"video/x-raw,width={width},framerate=25/1 ! filesink location={self.folder}/{output}"
            self.launch(f"output={output}", sink)
            self.assertEqual((self.folder / output).stat().st_size, 10 * 3 * width * 16)

    def test_a_bad_config_or_output_ends_it_with_the_programs_words(self):
        bad = self.folder / "bad.toml"
        bad.write_text("[pipeline]\nstags = 2\n")
        nearest = f"{bad}:2:1: unknown key pipeline.stags; the nearest is pipeline.stages"
        for options, config, told in (("", bad, nearest), ("weights=/proc/none/w", None, "/proc/none/w"),
                                      (f"weights={'w' * 300}", None, "w" * 300)):
            self.assertIn(told, self.launch(options, config=config, fails=True))

    def test_it_takes_gray_where_the_config_says_so(self):
        for channels in (1, 3):
            self.launch(f"set=source.channels={channels}", pictures=BALL.replace("RGB", "GRAY8"), fails=channels == 3)

    def test_it_ends_where_what_follows_ends(self):
        self.launch(sink="identity eos-after=3 ! fakesink", frames=40)

    def test_inspect_lists_every_property(self):
        told = self.gst("gst-inspect-1.0 millrace")
        for name in ["config", "weights", "schedule", "report", "rate", "output", "qos"]:
            self.assertRegex(told, re.compile(rf"^  {name} +: \S.{{20}}", re.M))
