"""What a run takes of the machine's memory: that it loads no library it has no use for, and that its report and `check` say
where the rest goes."""

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

    def test_the_report_accounts_for_what_more_stages_take(self):
        for schedule in ("partime", "pb", "pipedream"):
            with self.subTest(schedule):
                accounted, peaks = [], []
                for stages in (1, 4):
                    cut = list(range(2, 2 * stages, 2))
                    config = self.write(program.bare(program.small(
                        source={"width": 128, "height": 96}, model={"layers": 8, "features": 32},
                        pipeline={"stages": stages, "cut": cut, "schedule": schedule})))
                    program.call("run", config, "--frames", 8, "--quiet",
                                 "--report", self.folder / "report.json", env={})
                    report = self.report()
                    accounted.append(sum(report["memory_bytes"]["total"]))
                    peaks.append(report["process"]["peak_bytes"])
                self.assertGreater((accounted[1] - accounted[0]) / (peaks[1] - peaks[0]), 0.9)
                foretold = re.search(r"memory: ([\d.]+) MiB", self.succeed("check", config).out)
                self.assertLess(abs(float(foretold[1]) * 2**20 / accounted[1] - 1), 0.1)
