"""Plug-ins: layers, losses, sources and sinks of a user's own, from shared objects."""

import os
import re
import subprocess
import unittest

import program

PLUGINS = program.Path(program.MILLRACE).parent / "demos"
ALL = [str(PLUGINS / f"lib{name}.so") for name in ("layer", "loss", "source", "sink")]


def c_library(path, text, language="c"):
    """A shared object of C or C++ without Millrace's headers, as one for another Millrace would be."""
    subprocess.run(["c++", "-shared", "-fPIC", "-o", path, "-x", language, "-"], input=text, text=True, check=True)
    return str(path)


@unittest.skipUnless(PLUGINS.is_dir(), "a build without demos")
class Plugins(program.CliTest):
    def config(self):
        text = (program.ROOT / "demos/plugins/my.toml").read_text()
        text = text.replace('"./lib', f'"{PLUGINS}/lib').replace("csv:loss.csv", f"csv:{self.folder}/loss.csv")
        (self.folder / "my.toml").write_text(text)
        return self.folder / "my.toml"

    def test_each_kind_takes_part_in_a_run(self):
        self.reported("run", self.config(), "--frames", 200)
        rows = (self.folder / "loss.csv").read_text().splitlines()
        self.assertEqual(rows[0], "frame,loss,latency_ms")
        self.assertEqual(len(rows), 201)
        losses = [float(row.split(",")[1]) for row in rows[1:]]
        self.assertLess(sum(losses[-20:]), 0.7 * sum(losses[:20]))

    def test_check_and_the_key_list_name_what_they_add(self):
        self.assertIn("charbonnier", self.succeed("check", self.config()).out)
        outcome = program.call("check", "--set", "task.loss=charbonier", "--set", f"plugins={ALL}".replace("'", '"'))
        self.assert_refused(program.BAD_USAGE, outcome, "task.loss", "charbonnier")

    def test_what_can_not_be_used_is_one_line(self):
        other = c_library(self.folder / "other.so", """
            #include <string.h>
            void millrace_plugin_abi(char* out, unsigned long room) { strncpy(out, "interface 0", room); }
            void millrace_plugin(void* plugin) { *(char*)0 = 0; }
        """)
        none = c_library(self.folder / "none.so", "int nothing;")
        for path, words in [(other, ["built for another Millrace", "interface 0"]), (none, ["not a Millrace plug-in"]),
                            (f"{self.folder}/away.so", ["No such file"])]:
            self.assert_each_refused(((command, "--set", f'plugins=["{path}"]'), "plugins", path, *words)
                                     for command in ("run", "check"))

    def test_one_that_throws_while_it_is_loaded_is_named(self):
        def checked(abi):
            path = c_library(self.folder / "throws.so", f"""
                #include <cstring>
                #include <stdexcept>
                extern "C" void millrace_plugin_abi(char* out, unsigned long room) {{
                  std::strncpy(out, "{abi}", room);
                }}
                extern "C" void millrace_plugin(void*) {{ throw std::runtime_error("out of licences"); }}
            """, "c++")
            return program.call("check", "--set", f'plugins=["{path}"]')

        ours = re.search(r"this one is (.*)\): build", checked("interface 0").err)[1]
        self.assert_refused(program.BAD_USAGE, checked(ours), "plugins", "throws.so: out of licences")

    def test_frames_that_are_not_as_asked_end_the_run(self):
        for where, words in (("channels", "64x48 with 1 channels in 3072 bytes; 3 channels are due"),
                             ("pixels", "64x48 with 3 channels in 3072 bytes; 3 channels are due")):
            outcome = program.call("run", "--set", f'plugins=["{os.environ["FAULTY_SINK"]}"]',
                                   *program.sets(f"source.uri=torn:{where}", "source.width=32"))
            self.assertNotEqual(outcome.code, 0)
            self.assertIn(f"torn:{where}: its plug-in gave a frame of {words}", outcome.err)

    def test_a_sink_that_nobody_brings_and_one_that_can_not_write_are_refused(self):
        self.assert_each_refused(((("run", "--set", 'output.sinks=["cvs:x"]'), "output.sinks", "cvs"),
                                  (("check", "--set", 'output.sinks=["cvs:x"]'), "output.sinks", "cvs"),
                                  (("run", self.config(), "--set", 'output.sinks=["csv:/none/x.csv"]'), "output.sinks", "/none/x.csv")))
