"""What a run takes of the machine's memory: that it loads no library it has no use for, and that its report and `check` say
where the rest goes."""

import json
import re
import unittest
from pathlib import Path

import program

# LibTorch's wheel links these two, a megabyte each, to its part for cores.
OF_LIBTORCH = r"libcudart|libcupti"


class Memory(program.CliTest):
    def mapped(self, process):
        """Names of the libraries in it."""
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        return {Path(line.split()[-1]).name for line in maps.splitlines() if ".so" in line}

    @unittest.skipIf(Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists(), "a GPU is here")
    def test_a_run_on_cores_loads_no_cuda_and_no_codecs(self):
        run = self.start_run(self.write(program.small()), "--set", "source.pace=live")
        libraries = self.mapped(run)
        self.stop(run)
        self.assertIn("libtorch_cpu.so", libraries)
        unused = [name for name in libraries if re.match(r"lib(.*cu|.*cuda|nccl|nv)|libavcodec|libopencv_imgcodecs", name)
                  and not re.match(OF_LIBTORCH + "|libicu", name)]
        self.assertEqual(unused, [])

    def run_of(self, stages, schedule):
        """(its config, its report's bytes beside the libraries, what the process grew by)"""
        config = self.write(program.merged(program.BARE, {
            "source": {"uri": "synth:shapes", "width": 128, "height": 96}, "model": {"preset": "partime-cnn", "layers": 8},
            "pipeline": {"stages": stages, "cut": list(range(2, 2 * stages, 2)), "schedule": schedule}}))
        report = self.folder / "report.json"
        program.call("run", config, "--frames", 8, "--quiet", "--report", report, env={})
        made = json.loads(report.read_text())
        return config, sum(made["memory_bytes"]["total"]), made["process"]["peak_bytes"]

    def test_the_report_accounts_for_what_more_stages_take(self):
        for schedule in ("partime", "pb", "pipedream"):
            with self.subTest(schedule):
                _, one, peak_of_one = self.run_of(1, schedule)
                config, four, peak_of_four = self.run_of(4, schedule)
                self.assertGreater((four - one) / (peak_of_four - peak_of_one), 0.9)
                foretold = re.search(r"memory: ([\d.]+) MiB", self.succeed("check", config).out)
                self.assertLess(abs(float(foretold[1]) * 2**20 / four - 1), 0.1)
