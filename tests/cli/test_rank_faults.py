"""A run over hosts that fail, are cut off or slow. Hosts are network namespaces (tools/bench/hosts.py) and need root; one
test does without them."""

import json
import os
import shutil
import subprocess
import time
import unittest
from pathlib import Path

import program
from keeping import FPS, NEWEST, PREVIOUS, figure, frames_of
from test_ranks import ENVIRONMENT, LAUNCH, MPI, RanksTest, hosts

HOSTS = os.geteuid() == 0 and os.path.exists("/dev/net/tun") and shutil.which("ip") and shutil.which("tc")
SOON = 60  # seconds by which every rank has ended; 10 are promised on an idle machine


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class RankFaults(RanksTest):
    def live(self, **tables):
        return program.merged(self.config(optimizer={"kind": "adam", "lr": 0.01}), program.merged({
            "source": {"uri": "synth:shapes", "pace": "live"}, "checkpoint": {"dir": self.folder / "state", "every": 10},
            "output": {"weights": self.folder / "out.safetensors"}}, tables))

    def stderr_of(self, rank):
        return (self.folder / f"err.{rank}").read_text()

    def assert_goes_on(self):
        self.assertFalse((self.folder / "out.safetensors").exists(), "weights were written that are not all there")
        frames = frames_of(self.folder / "state" / NEWEST)
        self.assertGreaterEqual(frames, 20)
        file = self.write(self.live(checkpoint={"resume": True}))
        self.assertEqual(self.reported("run", file, "--frames", "5", "--quiet")[0]["run"]["resumed"]["frames"], frames)


@unittest.skipUnless(MPI, "no MPI")
@unittest.skipUnless(os.environ.get("FORK_SERVER"), "no shim under a sanitizer")
class Sockets(RankFaults):
    def test_a_rank_whose_mpi_does_not_return_ends_with_a_line_and_a_whole_checkpoint(self):
        file = self.write(self.live(source={"fps": FPS}))
        # The first of the 51st frame's two large messages, so that Open MPI goes on to send the
        # other; one came before all.
        (self.folder / "fault").write_text("/ 102 reset")
        script = (f"[ $OMPI_COMM_WORLD_RANK = 0 ] && export LD_PRELOAD={os.environ['FAULT_SHIM']}\n"
                  f"{program.MILLRACE} run {file} 2> err.$OMPI_COMM_WORLD_RANK; echo $? > code.$OMPI_COMM_WORLD_RANK")
        over_tcp = [word for key, value in (("pml", "ob1"), ("btl", "tcp,self"), ("btl_tcp_if_include", "lo"))
                    for word in ("--mca", key, value)]
        run = subprocess.Popen([*LAUNCH, *over_tcp, "--enable-recovery", "-n", "2", "sh", "-c", script], cwd=self.folder,
                               env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(run.wait)
        self.addCleanup(run.terminate)
        run.wait(SOON)
        self.assertEqual((self.folder / "fired").read_text(), "reset\n")
        for rank, why in ((0, "lost a rank: MPI does not return"), (1, "lost rank 0: no message for 5 s")):
            self.assertIn(f"millrace: error: {why}; the last checkpoint is kept\n", self.stderr_of(rank))
            self.assertEqual((self.folder / f"code.{rank}").read_text(), f"{program.FAILED}\n")
        self.assert_goes_on()
        figure("MPI that does not return", "a connection reset during a message: both ranks print one line and exit with 1; a later run "
                                           "resumes from the last checkpoint")


@unittest.skipUnless(MPI, "no MPI")
@unittest.skipUnless(HOSTS, "no network namespaces: not root, or no iproute2")
class Hosts(RankFaults):
    def assert_all_end_soon(self, harm, *options, **tables):
        """A run over two hosts has saved a checkpoint; then harm(bed, processes by rank) ends every rank, and a later run
        continues from a whole checkpoint."""
        file = self.write(self.live(**tables))
        script = f"exec {program.MILLRACE} run {file} 2> {self.folder}/err.$OMPI_COMM_WORLD_RANK"
        with hosts.Hosts(2) as bed:
            self.spawn(bed.command("sh", "-c", script, options=options), ENVIRONMENT)
            self.wait_until((self.folder / "state" / PREVIOUS).exists, "no checkpoint is written")
            processes = {rank: process for host in range(bed.count) for rank, process in bed.processes(host).items()}
            harm(bed, processes)
            began = time.monotonic()
            while any(map(is_running, processes.values())) and time.monotonic() < began + SOON:
                time.sleep(0.05)
            self.assertFalse([process for process in processes.values() if is_running(process)], "a rank hangs")
        self.assert_goes_on()

    def test_a_cut_link_ends_both_sides_with_a_line_and_a_whole_checkpoint(self):
        self.assert_all_end_soon(lambda bed, processes: bed.cut(1))
        for rank, other in ((0, 1), (1, 0)):
            line = f"millrace: error: lost rank {other}: no message for 5 s"
            self.assertEqual(self.stderr_of(rank).count(line), 1, self.stderr_of(rank))

    @program.each(
        ("neighbours", {}, 5), ("ranks that share its modules", {"pipeline": {"tensor": 2, "capture": "graph"}}, 6),
        ("the pipeline of another source", {"source": {"uris": ["synth:shapes", "synth:shapes"]}}, 6))
    def test_a_killed_rank_ends_the_others_with_a_line_and_a_whole_checkpoint(self, _, tables, seconds):
        shutil.rmtree(self.folder / "state", ignore_errors=True)
        (self.folder / "out.safetensors").unlink(missing_ok=True)
        # Without recovery mpirun itself would end the others.
        self.assert_all_end_soon(lambda bed, processes: os.kill(processes[1], 9), "--enable-recovery", **tables)
        # Now and then it is killed while rank 0 writes to it, and MPI does not return.
        self.assertRegex(self.stderr_of(0), f"millrace: error: (lost rank 1: no message for {seconds} s|"
                                            "lost a rank: MPI does not return); the last checkpoint is kept")

    def test_mpirun_ends_all_when_a_rank_is_killed(self):
        self.assert_all_end_soon(lambda bed, processes: os.kill(processes[0], 9))

    def over_hosts(self, tables, frames, delay_ms=0.0, mbit=0):
        file, report = self.write(tables), self.folder / "report.json"
        with hosts.Hosts(2, delay_ms) as bed:
            if mbit:
                bed.limit(0, mbit)
            program.output_of(*bed.command(program.MILLRACE, "run", file, "--quiet", "--frames", frames, "--report", report),
                              env=ENVIRONMENT, timeout=500, stdin=subprocess.DEVNULL)
        return json.loads(report.read_text())

    def test_two_hosts_give_the_weights_of_one_process(self):
        tables, weights = self.config(schedule="1f1b"), self.folder / "out.safetensors"
        expected = self.run_over(1, tables, "alone")[0]
        report = self.over_hosts(tables | {"output": {"weights": weights}}, 40, delay_ms=1)
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
