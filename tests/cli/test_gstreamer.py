"""The element `millrace` in pipelines of gst-launch-1.0."""

import os
import re
import subprocess
import unittest
from pathlib import Path

import program

PLUGINS = Path(program.MILLRACE).parent / "gst"
# An element that is built with AddressSanitizer can't be loaded by GStreamer's tools, which are not.
LOADABLE = PLUGINS.is_dir() and not os.environ.get("PRELOAD_FIRST")
BALL = "videotestsrc pattern=ball num-buffers=%d ! video/x-raw,format=RGB,width=32,height=24,framerate=25/1"


def gst(tool, *words):
    """A tool of GStreamer's that knows the built element; what it has scanned is kept beside that."""
    env = {**os.environ, "GST_PLUGIN_PATH": str(PLUGINS), "GST_REGISTRY": str(PLUGINS / "registry.bin")}
    done = subprocess.run([tool, *map(str, words)], env=env, text=True, capture_output=True, timeout=120)
    return program.Outcome(done.returncode, done.stdout, done.stderr)


@unittest.skipUnless(LOADABLE, "a build without GStreamer, or under a sanitizer")
class Element(program.CliTest):

    def config(self, **tables):
        return program.write_toml(self.folder / "my.toml", program.bare(
            {"source": {"width": 24, "height": 16}, "model": {"layers": 2, "features": 4, "kernel": 3},
             "pipeline": {"cut": [2]}, **tables}))

    def launch(self, text):
        return gst("gst-launch-1.0", *text.split())

    def test_it_learns_what_run_learns_to_the_bit(self):
        config = self.config()
        outcome = self.launch(f"{BALL % 40} ! millrace config={config} weights={self.folder}/gst.safetensors ! fakesink")
        self.assert_code(0, outcome)
        self.assertIn("trained", outcome.out)  # run's summary
        outcome = program.call("run", config, "--quiet", "--set", f"source.uri=gst:{BALL % 40}", "--set",
                               "source.pace=asap", "--set", f"output.weights={self.folder}/run.safetensors")
        self.assert_code(program.DONE, outcome)
        self.assertEqual(program.tensors_of(self.folder / "gst.safetensors"), program.tensors_of(self.folder / "run.safetensors"))

    def test_pictures_go_on_down_the_pipeline(self):
        config = self.config()
        for output, width in [("prediction", 24), ("error", 24), ("input-beside", 48)]:
            outcome = self.launch(f"{BALL % 10} ! millrace config={config} output={output} ! filesink location={self.folder}/{output}")
            self.assert_code(0, outcome)
            self.assertEqual((self.folder / output).stat().st_size, 10 * 3 * width * 16)

    def test_a_bad_config_ends_it_with_the_programs_words(self):
        bad = self.folder / "bad.toml"
        bad.write_text("[pipeline]\nstags = 2\n")
        outcome = self.launch(f"{BALL % 10} ! millrace config={bad} ! fakesink")
        self.assertNotEqual(outcome.code, 0)
        self.assertIn(f"{bad}:2:1: unknown key pipeline.stags; the nearest is pipeline.stages", outcome.out + outcome.err)

    def test_outputs_that_cannot_be_written_are_told(self):
        outcome = self.launch(f"{BALL % 10} ! millrace config={self.config()} weights=/proc/none/w ! fakesink")
        self.assertNotEqual(outcome.code, 0)
        self.assertIn("/proc/none/w", outcome.out + outcome.err)

    def test_inspect_reads_well(self):
        outcome = gst("gst-inspect-1.0", "millrace")
        self.assert_code(0, outcome)
        for name in ["config", "weights", "schedule", "report", "rate", "output", "qos"]:
            self.assertRegex(outcome.out, re.compile(rf"^  {name} +: \S.{{20}}", re.M))


if __name__ == "__main__":
    unittest.main()
