"""The same run over several processes: mpirun changes where stages run, and no number."""

import json
import os
import shutil
import signal
import subprocess
import unittest
from pathlib import Path

import numpy
from safetensors.numpy import save_file

import program

# After 40 updates, of a tensor's largest number: sums of float32 in another order.
BOUND = 1e-4

MPIRUN = shutil.which("mpirun")
# Tests share a machine's cores, and may run as root in a container. A leak checker finds what Open MPI's components left
# whose libraries are gone by then, so that no list can name them.
LAUNCH = [MPIRUN, "--oversubscribe", "--bind-to", "none", "--quiet"]
AS_RANKS = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
ENVIRONMENT = {**os.environ, **AS_RANKS}


def ranks(count, *command, shell=False):
    """The program on so many ranks, from start to end. `shell`: the command is one for sh."""
    command = ["sh", "-c", command[0]] if shell else [program.MILLRACE, *map(str, command)]
    done = subprocess.run([*LAUNCH, "-n", str(count), *command], env=ENVIRONMENT, text=True, timeout=500,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return program.Outcome(done.returncode, done.stdout, done.stderr)


def processes_under(parent):
    """The programs that a launcher has started, by rank."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) != parent:
                continue
            environment = (folder / "environ").read_bytes().split(b"\0")
        except (OSError, IndexError):
            continue
        for entry in environment:
            if entry.startswith(b"OMPI_COMM_WORLD_RANK="):
                found[int(entry.partition(b"=")[2])] = int(folder.name)
    return found


MPI = MPIRUN and (Path(program.MILLRACE).parent / "libmillrace_mpi.so").exists()


class RanksTest(program.CliTest):

    def config(self, schedule="partime", stages=2, cut=(4,), capture="eager", replicas=(), **tables):
        frames = program.write_frames(self.folder / "frames", program.random_frames(seed=3, count=40))
        return program.bare({"source": {"uri": frames, "width": 24, "height": 16, "pace": "asap"},
                             "model": {"layers": 4, "features": 4, "kernel": 3},
                             "pipeline": {"schedule": schedule, "stages": stages, "cut": list(cut),
                                          "capture": capture} |
                             ({"replicas": list(replicas)} if replicas else {})} | tables)

    def run_over(self, count, tables, name):
        """Learns over `count` ranks (1: no mpirun). Returns (weights' bytes, losses, report)."""
        weights, report, log = (self.folder / f"{name}.{end}" for end in ("safetensors", "json", "jsonl"))
        output = {"weights": str(weights), "log": str(log), "log_every": 1}
        config = program.write_toml(self.folder / "config.toml", {**tables, "output": output})
        call = ("run", config, "--quiet", "--report", report)
        outcome = program.call(*call) if count == 1 else ranks(count, *call)
        self.assert_code(program.DONE, outcome)
        self.assertEqual(outcome.err, "")
        losses = [json.loads(line).get("loss") for line in log.read_text().splitlines()]
        report = json.loads(report.read_text())
        self.assert_balanced(report)
        return program.tensors_of(weights), losses, report

    def assert_close(self, got, expected):
        """But for the order in which float32 is added up."""
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
        for key in ("schedule", "stages", "cut", "frames", "updates", "gradient_age", "memory_bytes", "dead_units",
                    "steps"):
            self.assertEqual(got[2][key], expected[2][key], key)
        self.assertNotIn("ranks", expected[2])
        return got[2]


@unittest.skipUnless(MPI, "no MPI")
class Ranks(RanksTest):

    def test_partime_over_two_ranks_gives_the_same_weights_and_losses(self):
        report = self.assert_same_over(2)
        self.assertEqual([rank["stages"] for rank in report["ranks"]], [[0], [1]])
        self.assertEqual(len({rank["process"] for rank in report["ranks"]}), 2)
        self.assertTrue(all(ms > 0 for ms in report["timing_ms"]["stage"]), report["timing_ms"])

    def test_step_programs_over_two_ranks_give_the_same_weights_and_losses(self):
        self.assert_same_over(2, capture="graph")

    def test_a_worker_with_several_stages_may_be_a_rank(self):
        self.assert_same_over(2, schedule="interleaved", stages=4, cut=(2, 4, 6), capture="graph")

    def test_four_ranks_give_the_same_weights_and_losses(self):
        report = self.assert_same_over(4, schedule="1f1b", stages=4, cut=(2, 4, 6))
        self.assertEqual([rank["workers"] for rank in report["ranks"]], [[0], [1], [2], [3]])

    def test_replicas_of_a_stage_may_be_a_rank_each(self):
        report = self.assert_same_over(4, schedule="pipedream", replicas=(2, 2), guard={"kind": "roll-back"})
        self.assertEqual([rank["stages"] for rank in report["ranks"]], [[0], [0], [1], [1]])
        self.assertEqual({link["carries"] for link in report["ranks"][3]["links"]},
                         {"activation", "target", "gradients of a replica", "turn"})

    def test_ranks_that_share_modules_learn_what_one_learns_but_for_rounding(self):
        for count, schedule, capture in ((2, "sequential", "eager"), (4, "gpipe", "eager"),
                                         (2, "2bw", "graph"), (4, "partime", "graph"), (4, "zb-h1", "graph")):
            with self.subTest(count=count, schedule=schedule, capture=capture):
                tables = self.config(schedule=schedule, capture=capture)
                expected, losses, _ = self.run_over(1, tables, "alone")
                tables["pipeline"]["tensor"] = 2
                got, shared_losses, report = self.run_over(count, tables, "shared")
                self.assert_close(got, expected)
                for mine, other in zip(shared_losses, losses, strict=True):
                    self.assertAlmostEqual(mine, other, delta=BOUND * other)
                self.assertEqual([rank["part"] for rank in report["ranks"]], [0, 1] * (count // 2))
                self.assertEqual(self.run_over(count, tables, "again")[0], got, "it is repeatable")

    def test_a_gradient_that_overflows_on_one_rank_is_left_out_by_all_that_share_its_modules(self):
        """Half of the first convolution's channels shrink what the second blows up: fine but for one gradient."""
        rng = numpy.random.default_rng(1)
        state = {"0.weight": rng.uniform(-1, 1, (4, 3, 3, 3)), "0.bias": numpy.zeros(4),
                 "2.weight": rng.uniform(-1, 1, (3, 4, 3, 3)), "2.bias": numpy.zeros(3)}
        state = {name: value.astype(numpy.float32) for name, value in state.items()}
        state["0.weight"][2:] *= numpy.float32(1e-36)
        state["2.weight"][:, 2:] *= numpy.float32(3e38)
        save_file(state, self.folder / "begin.safetensors")
        tables = self.config(schedule="sequential", stages=1, cut=(), capture="graph")
        del tables["pipeline"]["cut"]
        layers = [{"type": "conv", "out": 4, "kernel": 3}, {"type": "relu"}, {"type": "conv", "out": 3, "kernel": 3}]
        tables["model"] = {"preset": "layers", "layer": layers, "weights": str(self.folder / "begin.safetensors")}
        expected, _, alone = self.run_over(1, tables, "alone")
        self.assertEqual(alone["guard"]["skipped_updates"], [40], "no gradient is finite")
        tables["pipeline"]["tensor"] = 2
        got, _, shared = self.run_over(2, tables, "shared")
        self.assertEqual(got, expected, "as it began")
        self.assertEqual(shared["guard"]["skipped_updates"], [40])

    def test_a_checkpoint_of_shared_modules_is_of_whole_ones(self):
        state = self.folder / "state"
        tables = self.config(schedule="sequential", capture="graph",
                             optimizer={"kind": "sgd", "lr": 0.01, "momentum": 0.9})
        expected = self.run_over(1, tables, "alone")[0]
        tables["checkpoint"] = {"dir": str(state), "every": 10, "resume": True}
        frames = program.random_frames(seed=3, count=40)
        tables["source"]["uri"] = program.write_frames(self.folder / "first", frames[:25])
        shared = tables | {"pipeline": tables["pipeline"] | {"tensor": 2}}
        self.run_over(2, shared, "first")
        self.assertTrue((state / "checkpoint.previous.safetensors").exists(), "one was made on the way")
        tables["source"]["uri"] = program.write_frames(self.folder / "rest", frames[25:])
        self.assert_close(self.run_over(1, tables, "rest")[0], expected)

    def test_what_does_not_go_with_shared_modules_is_one_line(self):
        for key, value, words in (("cut", [], ("pipeline.cut", "name the cut")),
                                  ("cut", [1], ("pipeline.tensor", "no stage has two")),
                                  ("tensor", 3, ("pipeline.tensor", "a multiple of 3 ranks"))):
            tables = self.config()
            if value == [1]:
                tables["model"]["layers"] = 2
            tables["pipeline"] |= {"tensor": 2, key: value}
            file = program.write_toml(self.folder / "config.toml", tables)
            self.assert_refused(program.BAD_USAGE, ranks(4, "run", file), *words)
        tables = self.config(correction={"kind": "gap-aware"})
        tables["pipeline"]["tensor"] = 2
        file = program.write_toml(self.folder / "config.toml", tables)
        self.assert_refused(program.BAD_USAGE, ranks(4, "run", file), "correction.kind", "gap-aware", "mean step")
        file = program.write_toml(self.folder / "config.toml", tables)
        self.assert_refused(program.BAD_USAGE, program.call("run", file), "pipeline.tensor", "mpirun -n")

    def test_a_profile_by_ranks_tells_a_plan_what_sharing_modules_costs(self):
        file = program.write_toml(self.folder / "config.toml", self.config(schedule="sequential", stages=1, cut=()))
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
            planned = program.call("plan", path, "--devices", "2", "--tensor", "2")
            self.assert_code(program.DONE, planned)
            self.assertEqual("mpirun -n 2 millrace profile" in planned.out, not known, planned.out)

    def test_a_checkpoint_of_two_ranks_goes_on_in_one_process(self):
        state = self.folder / "state"
        tables = self.config(schedule="sequential", optimizer={"kind": "adam", "lr": 0.01})
        expected = self.run_over(1, tables, "alone")[0]
        tables["checkpoint"] = {"dir": str(state), "every": 10, "resume": True}
        frames = program.random_frames(seed=3, count=40)
        tables["source"]["uri"] = program.write_frames(self.folder / "first", frames[:25])
        self.run_over(2, tables, "first")
        self.assertTrue((state / "checkpoint.previous.safetensors").exists(), "one was made on the way")
        tables["source"]["uri"] = program.write_frames(self.folder / "rest", frames[25:])
        self.assertEqual(self.run_over(1, tables, "rest")[0], expected)

    def test_what_cannot_be_is_one_line_that_names_the_rank(self):
        file = program.write_toml(self.folder / "config.toml", self.config())
        self.assert_refused(program.BAD_USAGE, ranks(3, "run", file),
                            "pipeline.ranks", "3 ranks: the schedule has 2 workers, so 1 to 2")
        other = f"exec {program.MILLRACE} run {file} --set optimizer.lr=0.0$((OMPI_COMM_WORLD_RANK + 1))"
        self.assert_refused(program.BAD_USAGE, ranks(2, other, shell=True), "rank 1", "lr = 0.02", "lr = 0.01")
        older = Path(program.MILLRACE).read_bytes()
        version = program.call("--version").out.strip().encode()
        self.assertIn(version, older)
        (self.folder / "libmillrace_mpi.so").symlink_to(Path(program.MILLRACE).parent / "libmillrace_mpi.so")
        (self.folder / "older").write_bytes(older.replace(version[:-1], version[:-2] + b"#"))
        (self.folder / "older").chmod(0o755)
        mixed = f"exec $([ $OMPI_COMM_WORLD_RANK = 0 ] && echo {program.MILLRACE} || echo {self.folder}/older) run {file}"
        self.assert_refused(program.BAD_USAGE, ranks(2, mixed, shell=True), "rank 1 is version", "rank 0 is")
        one_core = f'exec $([ $OMPI_COMM_WORLD_RANK = 0 ] || echo taskset -c {min(os.sched_getaffinity(0))}) ' \
                   f"{program.MILLRACE} run {file} --set 'pipeline.devices=[\"cpu:0\", \"cpu:1\"]'"
        if len(os.sched_getaffinity(0)) > 1:
            self.assert_refused(program.BAD_USAGE, ranks(2, one_core, shell=True), "rank 1", "cpu:1")
        lacks = f"exec {program.MILLRACE} run $([ $OMPI_COMM_WORLD_RANK = 0 ] && echo {file} || echo gone.toml)"
        self.assert_refused(program.BAD_USAGE, ranks(2, lacks, shell=True), "rank 1", "gone.toml")

    def test_a_signal_to_any_rank_drains_all_and_saves(self):
        tables = self.config()
        tables["source"] = {"uri": "synth:shapes", "width": 24, "height": 16, "pace": "live"}
        weights, report = self.folder / "out.safetensors", self.folder / "report.json"
        tables["output"] = {"weights": str(weights), "report": str(report)}
        file = program.write_toml(self.folder / "config.toml", tables)
        run = subprocess.Popen([*LAUNCH, "-n", "2", program.MILLRACE, "run", str(file)], env=ENVIRONMENT, text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(self.end, run)
        for line in iter(run.stderr.readline, ""):
            if line.startswith("frame "):
                break
        os.kill(processes_under(run.pid)[1], signal.SIGTERM)
        out, err = run.communicate(timeout=60)
        self.assertEqual(run.returncode, program.DONE, err)
        self.assertIn("rank 1 was asked to stop: draining the pipeline", err)
        self.assertTrue(weights.exists())
        self.assert_balanced(json.loads(report.read_text()))


if __name__ == "__main__":
    unittest.main()
