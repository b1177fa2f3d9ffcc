"""A run over hosts that fail, are cut off or slow, and one that goes on with another number of ranks.

Hosts are network namespaces (tools/bench/hosts.py), which only root can make.
"""

import json
import os
import shutil
import subprocess
import sys
import time
import unittest
from pathlib import Path

from safetensors import safe_open

import program
from test_ranks import ENVIRONMENT, LAUNCH, MPI, RanksTest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools" / "bench"))
import hosts

HOSTS = os.geteuid() == 0 and os.path.exists("/dev/net/tun") and shutil.which("ip") and shutil.which("tc")
SOON = 60  # seconds by which every rank has ended: 10 are promised of a machine that has time for it


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@unittest.skipUnless(MPI, "no MPI")
@unittest.skipUnless(HOSTS, "no network namespaces: not root, or no iproute2")
class Hosts(RanksTest):

    def start(self, bed, tables, options=()):
        """A run over the bed's hosts that has learned and saved a checkpoint. Ranks' stderr is in files."""
        file = program.write_toml(self.folder / "config.toml", tables)
        script = f"exec {program.MILLRACE} run {file} 2> {self.folder}/err.$OMPI_COMM_WORLD_RANK"
        run = subprocess.Popen(bed.command("sh", "-c", script, options=options), env=ENVIRONMENT,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(run.wait)
        self.addCleanup(run.kill)
        saved = self.folder / "state" / "checkpoint.previous.safetensors"
        for _ in range(1200):
            if saved.exists():
                break
            time.sleep(0.1)
        self.assertTrue(saved.exists(), self.said(0))
        return {rank: process for host in range(bed.count) for rank, process in bed.processes(host).items()}

    def said(self, rank):
        return (self.folder / f"err.{rank}").read_text()

    def live(self):
        tables = self.config(optimizer={"kind": "adam", "lr": 0.01})
        tables["source"] = {"uri": "synth:shapes", "width": 24, "height": 16, "pace": "live"}
        tables["checkpoint"] = {"dir": str(self.folder / "state"), "every": 10}
        tables["output"] = {"weights": str(self.folder / "out.safetensors")}
        return tables

    def assert_all_end_soon(self, processes):
        began = time.monotonic()
        while any(map(is_running, processes)) and time.monotonic() < began + SOON:
            time.sleep(0.05)
        self.assertFalse([process for process in processes if is_running(process)], "a rank hangs")

    def assert_goes_on(self):
        """From a whole checkpoint, and nothing was written of weights that are not all there."""
        self.assertFalse((self.folder / "out.safetensors").exists())
        with safe_open(self.folder / "state" / "checkpoint.safetensors", "np") as file:
            frames = file.metadata()["frames"]
        self.assertGreaterEqual(int(frames), 20)
        tables = self.live()
        tables["checkpoint"]["resume"] = True
        report = self.folder / "report.json"
        file = program.write_toml(self.folder / "config.toml", tables)
        outcome = program.call("run", file, "--frames", "5", "--quiet", "--report", report)
        self.assert_code(program.DONE, outcome)
        self.assertEqual(json.loads(report.read_text())["run"]["resumed"]["frames"], int(frames))

    def test_a_cut_link_ends_both_sides_with_a_line_and_a_whole_checkpoint(self):
        with hosts.Hosts(2) as bed:
            ranks = self.start(bed, self.live())
            bed.cut(1)
            self.assert_all_end_soon(ranks.values())
        for rank, other in ((0, 1), (1, 0)):
            line = f"millrace: error: rank {other} is gone: nothing was heard of it for 5 s"
            self.assertEqual(self.said(rank).count(line), 1, self.said(rank))
        self.assert_goes_on()

    def test_a_killed_rank_ends_the_others_with_a_line_and_a_whole_checkpoint(self):
        with hosts.Hosts(2) as bed:
            ranks = self.start(bed, self.live(), ["--enable-recovery"])  # else mpirun ends them itself
            os.kill(ranks[1], 9)
            self.assert_all_end_soon(ranks.values())
        self.assertIn("millrace: error: rank 1 is gone: nothing was heard of it for 5 s", self.said(0))
        self.assert_goes_on()

    def test_a_killed_rank_ends_those_that_share_its_modules(self):
        tables = self.live()
        tables["pipeline"] |= {"tensor": 2, "capture": "graph"}
        with hosts.Hosts(2) as bed:
            ranks = self.start(bed, tables, ["--enable-recovery"])
            os.kill(ranks[1], 9)
            self.assert_all_end_soon(ranks.values())
        self.assertIn("millrace: error: rank 1 is gone: nothing was heard of it for 6 s", self.said(0))
        self.assert_goes_on()

    def test_a_killed_rank_ends_the_pipeline_of_another_source(self):
        tables = self.live()
        tables["source"]["uris"] = ["synth:shapes", "synth:shapes"]
        with hosts.Hosts(2) as bed:
            ranks = self.start(bed, tables, ["--enable-recovery"])
            os.kill(ranks[1], 9)
            self.assert_all_end_soon(ranks.values())
        self.assertIn("millrace: error: rank 1 is gone: nothing was heard of it for 6 s", self.said(0))
        self.assert_goes_on()

    def test_mpirun_ends_all_when_a_rank_is_killed(self):
        with hosts.Hosts(2) as bed:
            ranks = self.start(bed, self.live())
            os.kill(ranks[0], 9)
            self.assert_all_end_soon(ranks.values())
        self.assert_goes_on()

    def over_hosts(self, tables, frames, delay_ms=0.0, mbit=0):
        report = self.folder / "report.json"
        file = program.write_toml(self.folder / "config.toml", tables)
        with hosts.Hosts(2, delay_ms) as bed:
            if mbit:
                bed.limit(0, mbit)
            done = subprocess.run(bed.command(program.MILLRACE, "run", file, "--quiet", "--frames", frames, "--report",
                                              report), env=ENVIRONMENT, text=True, timeout=500,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, program.DONE, done.stderr)
        return json.loads(report.read_text())

    def test_two_hosts_give_the_weights_of_one_process(self):
        tables = self.config(schedule="1f1b")
        expected = self.run_over(1, tables, "alone")[0]
        weights = self.folder / "out.safetensors"
        report = self.over_hosts(tables | {"output": {"weights": str(weights)}}, 40, delay_ms=1)
        self.assertEqual(program.tensors_of(weights), expected)
        self.assertEqual([rank["host"] for rank in report["ranks"]], ["host0", "host1"])

    def test_two_hosts_with_a_source_each_give_the_weights_of_one_process(self):
        each = [program.random_frames(seed=source, count=20) for source in (1, 2)]
        turns = program.write_frames(self.folder / "turns", [image for turn in zip(*each) for image in turn])
        tables = self.config(schedule="pipedream")
        tables["source"]["uri"] = turns
        expected = self.run_over(1, tables | {"pipeline": tables["pipeline"] | {"replicas": [2, 2]}}, "alone")[0]
        tables["source"]["uris"] = [str(program.write_frames(self.folder / f"host{i}", images))
                                    for i, images in enumerate(each)]
        weights = self.folder / "out.safetensors"
        report = self.over_hosts(tables | {"output": {"weights": str(weights)}}, 20, delay_ms=1)
        self.assertEqual(program.tensors_of(weights), expected)
        self.assertEqual([rank["host"] for rank in report["ranks"]], ["host0", "host1"])

    def test_a_slow_link_shows_as_hand_off_and_is_named(self):
        tables = self.config()
        tables["source"] = {"uri": "synth:shapes", "width": 64, "height": 64, "pace": "asap"}
        quick, slow = self.over_hosts(tables, 100), self.over_hosts(tables, 100, mbit=20)
        link = slow["bottleneck_link"]
        self.assertEqual((link["from"], link["to"]), (0, 1))  # which sends at 20 Mbit/s
        least = link["bytes"] * 8 / 20e6 * 1e3 / 2  # ms; a part may go in a burst
        self.assertGreater(link["ms"], least)
        self.assertGreater(slow["timing_ms"]["handoff"][1], 5 * quick["timing_ms"]["handoff"][1])
        self.assertEqual(slow["timing_ms"]["bottleneck_stage"], 1)


@unittest.skipUnless(MPI, "no MPI")
class AnotherNumberOfRanks(RanksTest):

    def test_a_checkpoint_goes_on_with_another_number_of_ranks(self):
        frames = program.random_frames(seed=3, count=40)
        tables = self.config(schedule="sequential", stages=4, cut=(2, 4, 6),
                             optimizer={"kind": "adam", "lr": 0.01})
        expected = self.run_over(1, tables, "alone")[0]
        for before, after in ((2, 1), (2, 4), (4, 2)):
            with self.subTest(before=before, after=after):
                tables["checkpoint"] = {"dir": str(self.folder / f"state{before}{after}"), "resume": True}
                tables["source"]["uri"] = program.write_frames(self.folder / "first", frames[:25])
                self.run_over(before, tables, "first")
                tables["source"]["uri"] = program.write_frames(self.folder / "rest", frames[25:])
                self.assertEqual(self.run_over(after, tables, "rest")[0], expected)

    def test_another_build_or_version_is_named(self):
        file = program.write_toml(self.folder / "config.toml", self.config())
        other = self.folder / "build"
        other.mkdir()
        shutil.copy(program.MILLRACE, other / "millrace")
        with open(other / "millrace", "ab") as copy:
            copy.write(b"of another build")
        os.symlink(Path(program.MILLRACE).parent / "libmillrace_mpi.so", other / "libmillrace_mpi.so")
        script = f"[ $OMPI_COMM_WORLD_RANK = 1 ] && exec {other}/millrace run {file}; exec {program.MILLRACE} run {file}"
        done = subprocess.run([*LAUNCH, "-n", "2", "sh", "-c", script], env=ENVIRONMENT, text=True, timeout=60,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, program.BAD_USAGE, done.stderr)
        self.assertEqual(done.stderr.count("millrace: error: rank 1 is another build than rank 0"), 1, done.stderr)

    def test_a_device_that_ranks_have_not_is_one_line(self):
        for device in ("cuda:0", "cpu:4000"):
            tables = self.config()
            tables["pipeline"]["devices"] = [device, device]
            file = program.write_toml(self.folder / "config.toml", tables)
            done = subprocess.run([*LAUNCH, "-n", "2", program.MILLRACE, "run", str(file)], env=ENVIRONMENT, text=True,
                                  timeout=60, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.assertEqual(done.returncode, program.BAD_USAGE, done.stderr)
            self.assertIn(device, done.stderr)
            self.assertEqual(done.stderr.count("millrace: error:"), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
