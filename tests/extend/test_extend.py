"""The promises of docs/extend.md: each addition touches the files that its section names and no other, builds, and runs."""

import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

SOURCE = """
#include "io/source/source.h"

namespace millrace::io {
namespace {

struct Grey final : Source {
  SourceInfo info() const override { return {.kind = "grey", .width = 16, .height = 16, .fps = 25}; }
  ReadStatus read(Frame& out, std::chrono::milliseconds) override {
    if (frame == 40) return ReadStatus::end;
    out.reshape(16, 16, 3);
    out.pixels.assign(16 * 16 * 3, std::uint8_t(frame));
    out.pts = std::chrono::milliseconds(40 * frame++);
    return ReadStatus::frame;
  }
  bool rewind() override { return frame = 0, true; }

  int frame = 0;
};

}  // namespace

std::unique_ptr<Source> open_grey(const SourceOptions&) {
  return std::make_unique<Grey>();
}

}  // namespace millrace::io
"""

LAYER = """
#include <ATen/ATen.h>

#include "stages/layers.h"

namespace millrace::stages {

std::vector<LayerType> mine_layers() {
  return {{"halve", "half of its input", {}, [](const LayerSpec&, ImageShape&, const ImageShape*) {
             return layer_of({.text = "halve", .of = [](Values x, Values) { return x[0].exp().reciprocal().log() * -0.5; }});
           }}};
}

}  // namespace millrace::stages
"""

OPERATION = """
#include <ATen/ATen.h>

#include <cmath>

#include "capture/program/lowering.h"

namespace millrace::program {
namespace {

bool logarithm(Lowering& lower, const Call& call) {
  const at::Tensor &x = tensor(call, 0), &made = result(call);
  const auto count = std::size_t(made.numel());
  const auto arguments = [count](const Node& n, char*) {
    return kernels::RowArguments{.a = floats(n.reads[0]), .to = floats(n.writes[0]), .row = int(count)};
  };
  const auto on_cores = [](const kernels::RowArguments& r, kernels::Share share) {
    const auto [begin, end] = share.of(std::size_t(r.row));
    for (std::size_t i = begin; i < end; ++i) r.to[i] = std::log(r.a[i]);
  };
  const GpuKernel kernel{"logarithm", gpu::kThreads, gpu::divided_up(int(count), gpu::kThreads)};
  return lie_alike(x, made) && lower.add({.name = "logarithm",
                                          .on_cores = by_team(arguments, on_cores),
                                          .on_gpu = gpu_call({kernel}, arguments)},
                                         {x}, {made});
}

}  // namespace

const Rules logarithm_rules = {{"aten::log", {logarithm}}};

}  // namespace millrace::program
"""

KERNEL = """
#pragma once

#include "capture/program/cuda/block.cuh"

namespace millrace::gpu {

KERNEL(kThreads) logarithm(BY_VALUE RowArguments r) {
  start();
  const int i = block() * kThreads + thread();
  if (i < r.row) r.to[i] = logf(r.a[i]);
}

}  // namespace millrace::gpu
"""

COMMAND = """
#include <iostream>

#include "tools/cli/commands/command.h"

namespace millrace::cli {

const Command kGreet = {200, "greet", "Say hello", [](CLI::App&) {
                          return std::function([] { return std::cout << "hello\\n", int(kDone); });
                        }};

}  // namespace millrace::cli
"""


def new(path, text):
    return path, lambda _: text.lstrip("\n")


def put(path, before, text):
    """Puts `text` before the line that begins with `before`."""
    def edit(old):
        match = re.search(rf"^[ \t]*{re.escape(before)}", old, re.M)
        assert match, f"{path}: no line begins with {before}"
        return old[:match.start()] + text + old[match.start():]
    return path, edit


# Section of docs/extend.md: the files, and what is done to each.
ADDITIONS = {
    "A schedule": [("engine/schedule/generators/mine.cpp", lambda _: (
        ROOT / "engine/schedule/generators/sequential.cpp").read_text().replace("sequential", "mine"))],
    "A layer": [new("stages/layers_mine.cpp", LAYER)],
    "An optimizer or a correction": [
        put("stages/optimizer_formulas-inl.h", "template <class... Kinds>",
            'struct Zsgd : Sgd {\n  static constexpr OptimizerInfo kInfo = {\n'
            '      .name = "zsgd", .keys = {"momentum"}, .state = {"momentum"}};\n  using Formula = Zsgd;\n'
            '  FORMULA Zsgd(const UpdateNumbers& n, const Rate& lr, const Rate& steps) : Sgd(n, lr, steps) {}\n};\n\n'),
        ("stages/optimizer_formulas-inl.h", lambda old: old.replace("RmsProp, Sgd>;", "RmsProp, Sgd, Zsgd>;")),
    ],
    "A loss": [put("stages/loss.cpp", '{"l1",', '      {"mine", "absolute error by another name", l1, absolute},\n')],
    "A source": [
        new("io/source/source_grey.cpp", SOURCE),
        put("io/source/source.cpp", "namespace {", "std::unique_ptr<Source> open_grey(const SourceOptions&);\n"),
        put("io/source/source.cpp", '{"synth",', '      {"grey", "grey:", "grey pictures", "", false, open_grey},\n'),
        put("io/CMakeLists.txt", "source/source_synth.cpp", "  source/source_grey.cpp\n"),
    ],
    "A kernel of step programs": [
        put("capture/program/kernels/functions-inl.h", "FUNCTION(add,",
            'FUNCTION(reciprocal, "reciprocal", "aten::reciprocal", 1, 0, constant(1) / x)\n'),
        new("capture/program/operations/logarithm.cpp", OPERATION),
        new("capture/program/operations/logarithm.cuh", KERNEL),
    ],
    "A command": [new("tools/cli/commands/greet.cpp", COMMAND)],
    "A config key": [
        put("tools/app/config/config.h", "double silence_s", "    int answer = 42;\n"),
        put("tools/app/config/config_keys.cpp", "KEY(source.silence_s", '      KEY(source.answer, from(0, 100), "of everything"),\n'),
    ],
}


class Extend(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="millrace-extend-")))
        # Files that were deleted since the last commit are not there to be copied.
        copy = 'git ls-files -co --exclude-standard -z | xargs -0 cp -p --parents -t "$0"'
        subprocess.run(["sh", "-c", copy, cls.scratch], cwd=ROOT, stderr=subprocess.DEVNULL)
        (cls.scratch / ".venv").symlink_to(ROOT / ".venv")
        for edits in ADDITIONS.values():
            for path, edit in edits:
                file = cls.scratch / path
                file.write_text(edit(file.read_text() if file.exists() else ""))
        build = cls.scratch / "build/release"
        for command in (["cmake", "--preset", "release"], ["cmake", "--build", build, "-j2", "--target", "millrace"]):
            done = subprocess.run(command, cwd=cls.scratch, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        cls.program = build / "millrace"

    def says(self, *words):
        done = subprocess.run([self.program, *words], capture_output=True, text=True, cwd=self.scratch)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def learns(self, *settings):
        sets = [word for setting in ("source.uri=synth:shapes", *settings) for word in ("--set", setting)]
        self.assertIn("30 trained", self.says("run", *sets, "--frames", "30"))

    def test_each_section_names_the_files(self):
        sections = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", (ROOT / "docs/extend.md").read_text(), re.M | re.S))
        for title, edits in ADDITIONS.items():
            for path in {path for path, _ in edits}:
                named = path if path in sections[title] else str(pathlib.Path(path).parent) + "/"
                self.assertIn(f"`{named}", sections[title], f"{title}: {path}")

    def test_a_schedule(self):
        self.assertEqual(self.says("schedule", "mine", "--stages", "2", "--samples", "3").replace("mine", "sequential"),
                         self.says("schedule", "sequential", "--stages", "2", "--samples", "3"))
        self.learns("pipeline.schedule=mine")

    def test_a_layer(self):
        config = self.scratch / "layer.toml"
        config.write_text('[source]\nuri = "synth:shapes"\n[model]\npreset = "layers"\n'
                          '[[model.layer]]\ntype = "conv"\nout = 3\nkernel = 3\n[[model.layer]]\ntype = "halve"\n')
        self.assertIn("30 trained", self.says("run", config, "--frames", "30"))
        kernels = self.says("profile", config, "--operators")
        for name in ("reciprocal", "logarithm"):
            self.assertRegex(kernels, rf"\n +{name} +(?!LibTorch)")
        self.assertRegex(kernels, r"\n +aten::exp +LibTorch")

    def test_an_optimizer(self):
        for capture in ("graph", "eager"):
            self.learns("optimizer.kind=zsgd", f"pipeline.capture={capture}")

    def test_a_loss(self):
        self.learns("task.loss=mine")

    def test_a_source(self):
        self.assertIn("40 received = 39 trained", self.says("run", "grey:"))  # the last has no next

    def test_a_command(self):
        self.assertEqual(self.says("greet"), "hello\n")
        self.assertIn("greet", self.says("--help"))

    def test_a_config_key(self):
        self.assertIn("source.answer = 42", self.says("check", "--keys"))


if __name__ == "__main__":
    unittest.main()
