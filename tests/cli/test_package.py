"""What `cmake --install` leaves: a program that runs, and libraries that others find and build against."""

import json
import re
import shutil
import tempfile
import unittest
from pathlib import Path

from program import LONG, MILLRACE, ROOT, CliTest, output_of
from test_ranks import AS_RANKS

BUILD = Path(MILLRACE).parent


# Only programs built with the same sanitizer could link a sanitizer build's libraries.
needs_linkable = unittest.skipIf("-fsanitize" in (BUILD / "CMakeCache.txt").read_text(), "libraries of a sanitizer's build")


READER = """
#include <millrace/io/source/source.h>
int main() { return millrace::io::open_source({.uri = "synth:shapes"})->info().kind != "synth"; }
"""

BUILD_FILE = """
cmake_minimum_required(VERSION 3.25)
project(own LANGUAGES CXX)
find_package(millrace REQUIRED {components})
add_executable(own main.cpp)
target_link_libraries(own PRIVATE {library})
"""


class Package(CliTest):
    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="millrace-"))
        cls.prefix = Path(folder) / "installed"  # once: no test changes it
        output_of("cmake", "--install", BUILD, "--prefix", cls.prefix)

    def assert_learns(self, program):
        losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", output_of(program, cwd=self.folder))]
        self.assertEqual(len(losses), 6)
        self.assertLess(losses[-1], 0.5 * losses[0])

    def build(self, source, *options):
        """Builds that folder against what is installed; returns where."""
        build = self.folder / "build"
        output_of("cmake", "-G", "Ninja", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}", *options)
        output_of("cmake", "--build", build)
        return build

    def build_program(self, main, **names):
        """Builds a program of one file, its build file with other `names`."""
        source = self.folder / "source"
        source.mkdir()
        (source / "main.cpp").write_text(main)
        (source / "CMakeLists.txt").write_text(BUILD_FILE.format(**names))
        return self.build(source) / "own"

    def test_program_runs_without_the_tree_it_was_built_in(self):
        torch, = set(re.findall(r"=> (\S+)/lib/libtorch_cpu\.so", output_of("ldd", MILLRACE)))
        gone = self.prefix / "bin/gone"  # the program, of a tree that was since removed
        root = str(Path(torch).parent).encode()
        gone.write_bytes((self.prefix / "bin/millrace").read_bytes().replace(root, b"/" + b"x" * (len(root) - 1)))
        gone.chmod(0o755)
        with self.assertRaisesRegex(AssertionError, "libtorch"):
            output_of(gone, "--version")
        beside = self.prefix / "lib/millrace"
        beside.mkdir(exist_ok=True)
        (beside / "torch").symlink_to(torch)
        self.assertRegex(output_of(gone, "--version"), r"^\d+\.\d+\.\d+$")

    @unittest.skipUnless(shutil.which("dpkg-shlibdeps"), "no tools to make a Debian package with")
    def test_debian_packages_hold_a_program_that_runs(self):
        output_of("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", self.folder, "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip")
        package, = self.folder.glob("millrace_*.deb")
        root = self.folder / "root"
        output_of("dpkg-deb", "-x", package, root)
        for file in (root / "usr/bin/millrace", *root.rglob("libgstmillrace.so")):
            self.assertFalse(str(ROOT).encode() in file.read_bytes(), f"{file} names the folder that it was built in")
        self.assertIn("libgstreamer1.0-0", output_of("dpkg-deb", "-f", package, "Depends"))
        (root / "usr/lib/millrace").mkdir(exist_ok=True)
        torch, = set(re.findall(r"=> (\S+)/lib/libtorch_cpu\.so", output_of("ldd", MILLRACE)))
        (root / "usr/lib/millrace/torch").symlink_to(torch)
        run = (root / "usr/bin/millrace", "run", "--set", "source.uri=synth:shapes", "--frames", 5)
        self.assertIn("5 trained", output_of(*run, cwd=self.folder))
        if not (BUILD / "libmillrace_mpi.so").exists():
            return
        package, = self.folder.glob("millrace-mpi_*.deb")
        depends = output_of("dpkg-deb", "-f", package, "Depends")
        self.assertIn("libopenmpi", depends)
        self.assertIn("millrace (= ", depends)
        output_of("dpkg-deb", "-x", package, root)
        report = self.folder / "report.json"
        output_of("mpirun", "--oversubscribe", "-n", 2, *run, "--report", report, cwd=self.folder, env=AS_RANKS)
        self.assertEqual(len(json.loads(report.read_text())["ranks"]), 2)

    def test_man_page_completion_and_dashboard_lie_where_they_are_looked_for(self):
        for path in ["man/man1/millrace.1", "bash-completion/completions/millrace", "millrace/grafana-dashboard.json", "millrace/prometheus-alerts.yml"]:
            self.assertIn("millrace", (self.prefix / "share" / path).read_text())

    @needs_linkable
    def test_hello_by_cmake(self):
        self.assert_learns(self.build(ROOT / "demos/hello") / "hello")

    @needs_linkable
    def test_hello_by_pkg_config(self):
        source = shutil.copytree(ROOT / "demos/hello", self.folder / "hello")  # the tree stays as it is
        output_of("make", "-C", source, f"PREFIX={self.prefix}")
        self.assert_learns(source / "hello")

    @needs_linkable
    def test_frames_in_and_pictures_out_are_a_component(self):
        output_of(self.build_program(READER, components="COMPONENTS io", library="millrace::io"))

    @needs_linkable
    @unittest.skipUnless(LONG, "a minute of compiling that test_hello_by_cmake does, too")
    def test_the_layer_of_the_documentation_learns(self):
        shown = re.search(r"^```cpp\n(.*?)^```", (ROOT / "docs/extend.md").read_text(), re.MULTILINE | re.DOTALL)[1]
        self.assert_learns(self.build_program(shown, components="", library="millrace::engine"))

    @needs_linkable
    def test_plug_ins_build_against_what_is_installed_and_run(self):
        build = self.build(ROOT / "demos/plugins")
        said = output_of(self.prefix / "bin/millrace", "run", ROOT / "demos/plugins/my.toml", "--frames", 100, cwd=build)
        self.assertIn("100 trained", said)
        self.assertEqual(len((build / "loss.csv").read_text().splitlines()), 101)

    def test_a_folder_without_libtorch_is_named(self):
        with self.assertRaisesRegex(AssertionError, "no LibTorch in /nowhere"):
            self.build(ROOT / "demos/hello", "-DMILLRACE_TORCH=/nowhere")

    def test_headers_are_there_and_stand_alone_by_name(self):
        folder = self.prefix / "include/millrace"
        for header in folder.rglob("*.h"):
            for name in re.findall(r'^#include "([^"]+)"', header.read_text(), re.M):
                self.assertTrue((folder / name).exists(), f"{header} includes {name}")
