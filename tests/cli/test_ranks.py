"""The same run over several processes: mpirun changes where stages run, and no number."""

import json
import os
import shutil
import signal
import subprocess
import sys
import unittest
from pathlib import Path

import numpy
from safetensors.numpy import save_file

import program

sys.path.insert(0, str(program.ROOT / "tools" / "bench"))
import hosts  # noqa: E402

# Relative to a tensor's largest number, after 40 updates: float32 sums in another order.
BOUND = 1e-4

MPIRUN = shutil.which("mpirun")
# Tests share a machine's cores, and may run as root in a container. Leaks of Open MPI's components can't be suppressed by
# name: their libraries are unloaded by then.
LAUNCH = [MPIRUN, "--oversubscribe", "--bind-to", "none", "--quiet"]
AS_RANKS = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
ENVIRONMENT = {**os.environ, **AS_RANKS}


def ranks(count, *command, shell=False):
    """Runs the program on `count` ranks. `shell`: the command is one for sh."""
    command = ["sh", "-c", command[0]] if shell else [program.MILLRACE, *map(str, command)]
    done = subprocess.run([*LAUNCH, "-n", str(count), *command], env=ENVIRONMENT, text=True, timeout=500,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return program.Outcome(done.returncode, done.stdout, done.stderr)


def processes_under(parent):
    """The processes that a launcher has started, by rank."""
    children = [child for task in Path(f"/proc/{parent}/task").glob("*/children") for child in task.read_text().split()]
    return {rank: int(child) for child in children if (rank := hosts.rank_of(child)) is not None}


MPI = MPIRUN and (Path(program.MILLRACE).parent / "libmillrace_mpi.so").exists()


class RanksTest(program.CliTest):
    def config(self, schedule="partime", stages=2, cut=(4,), capture="eager", replicas=(), **tables):
        self.frames = program.random_frames(seed=3, count=40)
        pipeline = {"schedule": schedule, "stages": stages, "cut": list(cut), "capture": capture}
        return program.bare(program.small(
            program.write_frames(self.folder / "frames", self.frames), source={"pace": "asap"},
            model={"layers": 4, "features": 4}, pipeline=pipeline | ({"replicas": list(replicas)} if replicas else {}), **tables))

    def run_over(self, count, tables, name):
        """Learns over `count` ranks (1: no mpirun). Returns (weights' bytes, losses, report)."""
        weights, report, log = (self.folder / f"{name}.{end}" for end in ("safetensors", "json", "jsonl"))
        output = {"weights": str(weights), "log": str(log), "log_every": 1}
        config = self.write({**tables, "output": output})
        call = ("run", config, "--quiet", "--report", report)
        outcome = program.call(*call) if count == 1 else ranks(count, *call)
        self.assert_code(program.DONE, outcome)
        self.assertEqual(outcome.err, "")
        losses = [line.get("loss") for line in program.lines_of(log)]
        return program.tensors_of(weights), losses, self.report(report.name)

    def run_in_two_parts(self, before, after, first, rest):
        """Learns 25 frames over so many ranks and the other 15 over so many others, from a checkpoint."""
        state = self.folder / f"state{len(list(self.folder.iterdir()))}"
        for name, count, part, frames in (("first", before, first, self.frames[:25]), ("rest", after, rest, self.frames[25:])):
            uri = program.write_frames(self.folder / name, frames)
            got = self.run_over(count, program.merged(part, {
                "source": {"uri": uri}, "checkpoint": {"dir": state, "every": 10, "resume": True}}), name)
            self.assertTrue((state / "checkpoint.previous.safetensors").exists(), "one was made on the way")
        return got[0]

    def assert_ranks_refuse(self, base, *cases):
        """Each case: how many ranks, what they are told beside `base`, what the error holds."""
        for count, tables, *words in cases:
            with self.subTest(words=words):
                file = self.write(program.merged(base, tables))
                self.assert_refused(program.BAD_USAGE, ranks(count, "run", file), *words)

    def assert_close(self, got, expected):
        """Equal up to the order of float32 sums."""
        self.assertEqual(got[0], expected[0])  # names and shapes
        for name, (begin, end) in ((name, entry["data_offsets"]) for name, entry in expected[0].items()):
            mine, theirs = (numpy.frombuffer(state[1][begin:end], numpy.float32) for state in (got, expected))
            self.assertLessEqual(abs(mine - theirs).max(), BOUND * abs(theirs).max(), name)

    def assert_same_over(self, count, **what):
        tables = self.config(**what)
        expected = self.run_over(1, tables, "alone")
        got = self.run_over(count, tables, "ranks")
        self.assertEqual(got[0], expected[0], f"weights differ: {what}")
        self.assertEqual(got[1], expected[1], f"losses differ: {what}")
        for key in ("schedule", "stages", "cut", "frames", "updates", "gradient_age", "dead_units", "steps"):
            self.assertEqual(got[2][key], expected[2][key], key)
        for key in ("weights", "stashes", "optimizer", "gradients", "activations_peak"):  # others are a process's
            self.assertEqual(got[2]["memory_bytes"][key], expected[2]["memory_bytes"][key], key)
        self.assertNotIn("ranks", expected[2])
        return got[2]


@unittest.skipUnless(MPI, "no MPI")
class Ranks(RanksTest):
    def test_each_worker_on_a_rank_gives_the_same_weights_and_losses(self):
        """(ranks, the run, and the stages of each rank). All schedules: trainer_ranks_test.cpp."""
        for count, what, stages in (
                (2, {}, [[0], [1]]),
                (2, {"schedule": "interleaved", "capture": "graph", "stages": 4, "cut": (2, 4, 6)},
                 [[0, 2], [1, 3]]),
                (4, {"schedule": "pipedream", "replicas": (2, 2), "guard": {"kind": "roll-back"}}, [[0], [0], [1], [1]])):
            with self.subTest(count=count, **what):
                report = self.assert_same_over(count, **what)
                self.assertEqual([rank["stages"] for rank in report["ranks"]], stages)
                self.assertEqual(len({rank["process"] for rank in report["ranks"]}), count)
                self.assertTrue(all(ms > 0 for ms in report["timing_ms"]["stage"]), report["timing_ms"])
        self.assertEqual({link["carries"] for link in report["ranks"][3]["links"]},
                         {"activation", "target", "gradients of a replica", "turn"})

    @program.each((2, "2bw", "graph"), (4, "gpipe", "eager"), (4, "zb-h1", "graph"))
    def test_ranks_that_share_modules_learn_what_one_learns_up_to_rounding(self, count, schedule, capture):
        tables = self.config(schedule=schedule, capture=capture)
        expected, losses, _ = self.run_over(1, tables, "alone")
        tables["pipeline"]["tensor"] = 2
        got, shared_losses, report = self.run_over(count, tables, "shared")
        self.assert_close(got, expected)
        for mine, other in zip(shared_losses, losses, strict=True):
            self.assertAlmostEqual(mine, other, delta=BOUND * other)
        self.assertEqual([rank["part"] for rank in report["ranks"]], [0, 1] * (count // 2))
        if count == 2:
            self.assertEqual(self.run_over(count, tables, "again")[0], got, "it is repeatable")

    def test_a_gradient_that_overflows_on_one_rank_is_skipped_by_all_that_share_its_modules(self):
        """Half of the first convolution's channels shrink what the second blows up: only one gradient overflows."""
        rng = numpy.random.default_rng(1)
        state = {"0.weight": rng.uniform(-1, 1, (4, 3, 3, 3)), "0.bias": numpy.zeros(4),
                 "2.weight": rng.uniform(-1, 1, (3, 4, 3, 3)), "2.bias": numpy.zeros(3)}
        state = {name: value.astype(numpy.float32) for name, value in state.items()}
        state["0.weight"][2:] *= numpy.float32(1e-36)
        state["2.weight"][:, 2:] *= numpy.float32(3e38)
        save_file(state, self.folder / "begin.safetensors")
        tables = self.config(schedule="sequential", stages=1, cut=(), capture="graph")
        layers = [{"type": "conv", "out": 4, "kernel": 3}, {"type": "relu"}, {"type": "conv", "out": 3, "kernel": 3}]
        tables["model"] = {"preset": "layers", "layer": layers, "weights": str(self.folder / "begin.safetensors")}
        expected, _, alone = self.run_over(1, tables, "alone")
        self.assertEqual(alone["guard"]["skipped_updates"], [40], "no update is finite")
        tables["pipeline"]["tensor"] = 2
        got, _, shared = self.run_over(2, tables, "shared")
        self.assertEqual(got, expected, "as it began")
        self.assertEqual(shared["guard"]["skipped_updates"], [40])

    @program.each({"kind": "sgd", "lr": 0.01, "momentum": 0.9}, {"kind": "adam", "lr": 0.001})
    def test_a_checkpoint_goes_on_with_another_number_of_ranks(self, optimizer):
        """To the bit; where modules are shared, whose checkpoint is of whole ones, up to rounding."""
        tables = self.config(schedule="sequential", stages=4, cut=(2, 4, 6), capture="graph", optimizer=optimizer)
        expected = self.run_over(1, tables, "alone")[0]
        for before, after in ((2, 4), (4, 1)):
            self.assertEqual(self.run_in_two_parts(before, after, tables, tables), expected, (before, after))
        shared = program.merged(tables, {"pipeline": {"tensor": 2, "stages": 2, "cut": [4]}})
        self.assert_close(self.run_in_two_parts(2, 1, shared, tables), expected)
        self.assert_close(self.run_in_two_parts(1, 2, tables, shared), expected)

    def test_what_does_not_go_with_shared_modules_is_one_line(self):
        self.assert_ranks_refuse(
            program.merged(self.config(), {"pipeline": {"tensor": 2}}),
            (4, {"pipeline": {"cut": []}}, "pipeline.cut", "set the cut"),
            (4, {"pipeline": {"cut": [1]}, "model": {"layers": 2}}, "pipeline.tensor", "no stage has two"),
            (4, {"pipeline": {"tensor": 3}}, "pipeline.tensor", "a multiple of 3 ranks"),
            (4, {"correction": {"kind": "gap-aware"}}, "correction.kind", "gap-aware", "mean step"),
            (4, {"optimizer": {"orthogonal": 0.9}}, "optimizer.orthogonal", "whole tensor"))
        outcome = program.call("run", self.folder / "config.toml")
        self.assert_refused(program.BAD_USAGE, outcome, "pipeline.tensor", "mpirun -n")

    def test_a_profile_by_ranks_tells_a_plan_what_sharing_modules_costs(self):
        file = self.write(self.config(schedule="sequential", stages=1, cut=()))
        path = self.folder / "profile.json"
        outcome = ranks(2, "profile", file, "--json", path)
        self.assert_code(program.DONE, outcome)
        self.assertEqual(outcome.out.count("ms a sample\n"), 1, "one rank tells")
        self.assertRegex(outcome.out, r"one of 2 +parts +\d")
        profile = json.loads(path.read_text())
        sums = profile["hand_offs"][1]
        self.assertEqual(sums["between"], "sums over ranks")
        self.assertTrue(all(ms > 0 for _, ms in sums["bytes_ms"]), sums)
        first, second = profile["modules"][0], profile["modules"][2]
        self.assertEqual(first["tensor_gradient_bytes"], 0, "nobody wants the sample's gradient")
        self.assertEqual(second["tensor_bytes"], 4 * 4 * 24 * 16)
        self.assertEqual([len(parts) for parts in second["tensor_ms"]], [5] * len(second["tensor_ms"]))
        for known in (True, False):
            if not known:
                del profile["hand_offs"][1]
                path.write_text(json.dumps(profile))
            planned = self.succeed("plan", path, "--devices", "2", "--tensor", "2")
            self.assertEqual("mpirun -n 2 millrace profile" in planned.out, not known, planned.out)

    def build(self, name, change):
        """A copy of the program whose bytes went through `change`."""
        folder = self.folder / name
        folder.mkdir()
        (folder / "libmillrace_mpi.so").symlink_to(Path(program.MILLRACE).parent / "libmillrace_mpi.so")
        (folder / "millrace").write_bytes(change(Path(program.MILLRACE).read_bytes()))
        (folder / "millrace").chmod(0o755)
        return folder / "millrace"

    def test_ranks_that_differ_are_one_line_that_names_the_rank(self):
        file = self.write(self.config())
        version = program.call("--version").out.strip().encode()
        self.assertIn(version, Path(program.MILLRACE).read_bytes())
        older = self.build("older", lambda data: data.replace(version[:-1], version[:-2] + b"#"))
        other = self.build("other", lambda data: data + b"of another build")
        same = f"{program.MILLRACE} run {file}"
        one_core = f"taskset -c {min(os.sched_getaffinity(0))} {same}"
        for command, words in ((f"{same} --set optimizer.lr=0.02", ("rank 1", "lr = 0.02", "lr = 0.01")),
                               (f"{older} run {file}", ("rank 1 is version", "rank 0 is")),
                               (f"{other} run {file}", ("rank 1 runs another build than rank 0",)),
                               (f"{program.MILLRACE} run gone.toml", ("rank 1", "gone.toml"))):
            with self.subTest(words=words):
                script = f"[ $OMPI_COMM_WORLD_RANK = 1 ] && exec {command}; exec {same}"
                self.assert_refused(program.BAD_USAGE, ranks(2, script, shell=True), *words)
        if len(os.sched_getaffinity(0)) > 1:
            devices = "--set 'pipeline.devices=[\"cpu:0\", \"cpu:1\"]'"
            script = f"[ $OMPI_COMM_WORLD_RANK = 1 ] && exec {one_core} {devices}; exec {same} {devices}"
            self.assert_refused(program.BAD_USAGE, ranks(2, script, shell=True), "rank 1", "cpu:1")

    def test_what_no_rank_has_is_one_line(self):
        self.assert_ranks_refuse(self.config(), (3, {}, "pipeline.ranks", "3 ranks: the schedule has 2 workers, so 1 to 2"),
                                 *((2, {"pipeline": {"devices": [device] * 2}}, device) for device in ("cuda:0", "cpu:4000")))

    def test_a_signal_to_any_rank_drains_all_and_saves(self):
        weights = self.folder / "out.safetensors"
        tables = program.merged(self.config(), {"source": {"uri": "synth:shapes", "pace": "live"}, "output": {
            "weights": weights, "report": self.folder / "report.json"}})
        run = self.spawn([*LAUNCH, "-n", "2", program.MILLRACE, "run", self.write(tables)], ENVIRONMENT)
        self.read_until(run, "frame ")
        os.kill(processes_under(run.pid)[1], signal.SIGTERM)
        _, err = self.finish(run)
        self.assertIn("rank 1 was asked to stop: draining the pipeline", err)
        self.assertTrue(weights.exists())
        self.report()

    def test_a_rank_that_never_comes_is_named_and_a_signal_ends_the_wait(self):
        file = self.write(self.config())
        # The one never starts MPI; the other does, and then stops before it says anything: its config is a pipe without a writer.
        os.mkfifo(self.folder / "pipe")
        for late, whom in (("exec sleep 600", "the other ranks to start"), (f"exec {program.MILLRACE} run {self.folder}/pipe", "rank 1")):
            with self.subTest(whom):
                script = f"[ $OMPI_COMM_WORLD_RANK = 1 ] && {late}; exec {program.MILLRACE} run {file}"
                run = self.spawn([*LAUNCH, "-n", "2", "sh", "-c", script], ENVIRONMENT)
                self.read_until(run, f"waiting for {whom}")
                os.kill(processes_under(run.pid)[0], signal.SIGTERM)
                self.read_until(run, f"stopped while waiting for {whom}")
                run.communicate(timeout=120)
