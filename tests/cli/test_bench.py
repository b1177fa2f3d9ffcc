"""Bench runs its suites, writes what it measured and compares. Says nothing of how fast anything is."""

import importlib.util
import itertools
import json
import math
import os
import sys
import unittest

import program
import test_ranks

sys.path.insert(0, str(program.ROOT / "tools" / "bench"))
import plots  # noqa: E402

SHORT = ["--rounds", "1", "--seconds", "0.02", "--sizes", "16"]


class Bench(program.CliTest):
    def results(self, suite, *options, positive=(), parts=(), **how):
        """What it measured: `positive` figures of each arm; and its page, which is printed as well and has these `parts`.
        Its plot is a PNG."""
        file, page, plot = (self.folder / f"{suite}.{end}" for end in ("json", "md", "png"))
        draws = ("--plot", plot) if suite in plots.PLOTS else ()
        outcome = self.succeed("bench", suite, *SHORT, "--json", file, "--page", page, *draws, *options, **how)
        for picture in self.folder.glob("*.png"):
            self.assertTrue(picture.read_bytes().startswith(b"\x89PNG"), picture)
        self.assertEqual(plot.exists() or suite == "streams", bool(draws))
        for part in (page.read_text(), *parts):
            self.assertIn(part, outcome.out)
        results = json.loads(file.read_text())
        for arm in results["arms"]:
            self.assert_positive(arm, *positive)
        return results, outcome.out

    def assert_positive(self, entry, *figures):
        for figure in figures:
            self.assertGreater(entry[figure], 0, (entry, figure))

    def test_framerate(self):
        results, _ = self.results(
            "framerate", "--networks", "basic,kernel", "--stages", "2", parts=("| kernel, 16 | ", "## Stages or threads"),
            positive=("fps", "speedup", "T_ms", "T_over_N_ms", "bottleneck_ms", "latency_p50_ms", "latency_p99_ms"))
        several = len(os.sched_getaffinity(0)) > 1
        self.assertEqual([arm["arm"] for arm in results["arms"]],
                         [f"{network} 16 {arm}" for network in ("basic", "kernel")
                          for arm in ("x1", "x2", "x1x2") if several or arm != "x1x2"])
        self.assertIn("libtorch", results["provenance"])

    def test_camera(self):
        results, _ = self.results("camera", "--seconds", "1", "--sizes", "64", parts=("camera 64x48",))
        (arm,) = results["arms"]
        self.assertEqual(arm["unreadable"], 0)  # each picture says when it was shown
        shown, captured = arm["shown_to_prediction_ms"], arm["capture_to_prediction_ms"]
        self.assertGreater(shown["p50"], captured["p50"])

    def test_partime(self):
        results, _ = self.results("partime", "--networks", "basic", "--sizes", "16,24", "--stages", "3", parts=(
            "**Predicted**", "(partime.png)", "eager: measured ms"))
        self.assertEqual({(arm["size"], arm["stages"], arm["capture"]) for arm in results["arms"]},
                         set(itertools.product((16, 24), (1, 2, 3), ("graph", "eager"))))
        for arm in results["arms"]:
            self.assertEqual("measured" in arm, arm["stages"] <= results["cores"], arm["arm"])
            for kind in {"predicted", "measured"} & arm.keys():
                self.assert_positive(arm[kind], "step_ms", "T_ms", "slowest_ms", "K")

    @program.needs("mpirun")
    def test_ranks(self):
        results, _ = self.results("ranks", "--quick", env=test_ranks.AS_RANKS, positive=("ours_ms", "ratio"),
                                  parts=("hand-off, shared memory, 16 px", "bare MPI"))
        arms = {arm["kind"]: arm for arm in results["arms"]}
        self.assertEqual(set(arms), {"handoff", "step"} | (set() if results["lacks_hosts"] else {"delay"}))
        self.assertGreater(arms["handoff"]["bytes"], 16 * 16 * 16 * 4)  # an activation and its head

    def test_prediction(self):
        results, page = self.results("prediction", "--quick", "--networks", "basic", parts=("## basic, 16 x 16",),
                                     positive=("predicted_ms", "measured_ms", "ratio"))
        schedules = {"sequential", "partime", "pb", "pipedream", "2bw", "gpipe", "1f1b", "interleaved", "zb-h1"}
        self.assertEqual({(arm["schedule"], arm["workers"]) for arm in results["arms"]},
                         set(itertools.product(schedules, (1, 2))))
        self.assertIn(f"{results['within']} of 18 are within 5 %", page)

    def test_seeds(self):
        results, _ = self.results("seeds", "--quick", "--stages", "2",
                                  parts=("## Bubbles", "seeds.png", "## Memory", "(p-1)/m"),
                                  positive=("measured_ms", "predicted_ms", "work_ms"))
        steps = {arm["arm"]: arm for arm in results["arms"]}
        if results["workers"] == 2:
            for name, share in (("gpipe", 1 / 5), ("1f1b", 1 / 5), ("interleaved", 1 / 9)):
                bubble = steps[f"{name}, m = 4"]["bubble"]
                self.assertAlmostEqual(bubble["formula"], share)
                self.assertAlmostEqual(bubble["equal_stages"], share)  # the schedule's text waits as its paper says
        arms = {arm["arm"]: arm["stages"] for arm in results["memory"]["arms"]}
        self.assertLessEqual({"sequential", "partime", "pb", "pipedream", "2bw", "gpipe", "gpipe recompute", "1f1b",
                              "interleaved", "zb-h1"}, arms.keys())
        for name, stages in arms.items():
            self.assertEqual(len(stages), 4)
            for stage in stages:
                self.assertEqual(stage["weights"] * stage["versions"], stage["weights"] + stage["stashes"])
                if name == "gpipe recompute":
                    self.assertLess(stage["activations"], stage["formula"], stage)
                elif name == "zb-h1":  # keeps what lies between modules, too
                    self.assertGreater(stage["activations"], stage["formula"], stage)
                else:  # exact: every sample keeps the same tensors
                    self.assertEqual(stage["activations"], stage["formula"], (name, stage))

    def test_streams(self):
        results, _ = self.results("streams", "--quick", "--streams", "shapes", "--frames", "16", "--stages", "1",
                                  "--arms", "rmsprop", parts=("## shapes",))
        names = ["sequential x1", "sequential x1, rmsprop", "sequential x1, rmsprop, orthogonal", "PyTorch's loop, rmsprop"]
        self.assertEqual([(arm["stream"], arm["arm"]) for arm in results["arms"]], [("shapes", name) for name in names])
        one, ours, projected, theirs = results["arms"]
        self.assertEqual((one["gain"]["mean"], one["ferret"]), (0, 0))
        for figure in ("error", "last_100", "out_of_stream"):  # the same pictures, weights and rule
            self.assertTrue(math.isclose(ours[figure]["mean"], theirs[figure]["mean"], rel_tol=1e-3), (ours, theirs))
        self.assertNotEqual(ours["error"]["mean"], results["streams"][0]["rival"]["error"])
        self.assertGreater(projected["memory_bytes"], ours["memory_bytes"])  # the running mean
        self.assertGreater(ours["memory_bytes"], theirs["memory_bytes"])
        self.assertTrue((self.folder / "streams-shapes.png").exists())

    def test_labels(self):
        results, _ = self.results("labels", "--quick", parts=("| day, night |", "| ridge |"))
        figures = {arm["arm"]: arm["accuracy"] for arm in results["arms"]}
        self.assertGreaterEqual(figures["ridge"], 0.98)
        self.assertIn("by gradients", figures)

    @unittest.skipUnless(importlib.util.find_spec("cv2"), "needs OpenCV for Python")
    def test_events(self):
        results, _ = self.results("events", "--quick", parts=("| obj12 | yard |",))
        self.assertEqual([arm["arm"] for arm in results["arms"]][:2], ["Millrace", "longest stay"])
        self.assertLessEqual(results["arms"][0]["delay"], 20)

    @unittest.skipUnless(importlib.util.find_spec("cv2"), "needs OpenCV for Python")
    def test_peers(self):
        """Each answers, and the fixed rival's figures are what they must be."""
        results, _ = self.results("peers", "--quick", parts=("| laziest answer | 1.00 | 1.00 | 0 | 0 | 0.0 | 50.0 |",), timeout=800)
        rows = {row["arm"]: row for row in results["rows"]}
        self.assertEqual(rows["Millrace"]["yard_found"], 1)
        self.assertGreaterEqual(rows["Millrace"]["accuracy"], 0.98)
        self.assertGreater(rows["PyTorch's loop"]["street_times"], 1.2)
        for arm in ("Millrace", "PyTorch's loop", "MOG2", "PaDiM-like"):
            self.assert_positive(rows[arm], "ms", "core_ms", "peak_bytes")

    def test_replay(self):
        results, _ = self.results("replay", "--frames", "60", parts=("| reservoir |",), positive=(
            "loss_mean", "loss_last_100", "latency_p99_ms", "p99_over_none"))
        self.assertEqual([arm["arm"] for arm in results["arms"]], ["none", "recent", "reservoir", "hard"])
        # On a busy machine the others may find no time, either.
        self.assertEqual(results["arms"][0]["replayed"], 0)

    def test_operations(self):
        config = self.write({"source": {"uri": "synth:moving", "width": 16, "height": 16}})
        results, _ = self.results("operations", "--config", config, parts=("| `convolution` |", "| `copy_` |"),
                                  positive=("ours_us", "libtorch_us", "times"))
        self.assertIn("convolution_backward", {arm["operator"] for arm in results["arms"]})
        whole, _ = self.results("operations", parts=("| residual |", "| attention |"))
        self.assertFalse([arm for arm in whole["arms"] if "aten::" in arm["kernels"]], "each has a kernel")

    def test_ingest(self):
        results, _ = self.results("ingest", parts=("| grey 1920x1080 |", "| hop every ms |"))
        self.assertEqual(len(results["arms"]), 6 + 2)
        again = self.succeed("bench", "ingest", *(word for option in ("--from", "--compare") for word in (option, self.folder / "ingest.json")))
        self.assertIn("ingest_us 1.000", again.out.partition("ratios to")[2])
        samples = ("ingest_us", "memcpy_us", "opencv_us", "over_memcpy", "over_opencv")
        hops = ("queue_ns", "gstreamer_ns", "mutex_ns", "over_gstreamer", "over_mutex")
        for arm in results["arms"]:
            self.assert_positive(arm, *(hops if "hop" in arm["arm"] else samples))

    def test_tables(self):
        """With graphs in the form and the places of PipeDream's repository, which `plan` reads too; the figures are invented."""
        for network in ("image_classification/profiles/vgg16", "image_classification/profiles/resnet50",
                        "translation/profiles/gnmt_large"):
            graph = self.folder / network / "graph.txt"
            graph.parent.mkdir(parents=True)
            layers = [f"node{n} -- Linear() -- forward_compute_time=1.0, backward_compute_time=2.0, "
                      f"activation_size=1000.0, parameter_size=4000000.0" for n in range(1, 17)]
            edges = [f"\tnode{n} -- node{n + 1}" for n in range(1, 16)]
            graph.write_text("\n".join(layers + edges) + "\n")
        plain, _ = self.results("tables")
        both, page = self.results("tables", "--profiles", self.folder)
        self.assertEqual(len(both["arms"]), len(plain["arms"]) + 5)
        self.assertIn("from its authors' profiles", page)
        planned = self.succeed("plan", graph, "--devices", "2", "--frames", "10").out
        self.assertIn("416.7 frames a second", planned)  # 10 in 24 ms, of 48 in all
        graph.unlink()
        self.assert_refused(program.BAD_USAGE, program.call("bench", "tables", "--profiles", self.folder), "graph.txt")

    def test_bad_usage(self):
        self.assert_each_refused((("bench", *words), part) for part, *words in (
            ("framerate", "framrate"), ("--sizes", "framerate", "--sizes", "0"), ("basic", "framerate", "--networks", "basics"),
            ("framerate", "partime", "--networks", "resnet18"), ("partme", "streams", "--arms", "partme"),
            ("--compare", "ingest", "--compare", "/nonexistent")))
