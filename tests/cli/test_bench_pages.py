"""Pages and plots of what benchmarks measured, and the published tables. Nothing here depends on how fast anything is."""

import json
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

import program

BENCHMARKS = program.ROOT / "docs" / "benchmarks"
sys.path.insert(0, str(program.ROOT / "tools" / "bench"))

import events  # noqa: E402
import measuring  # noqa: E402
import pages  # noqa: E402
import plots  # noqa: E402
import streams  # noqa: E402
import tables  # noqa: E402


def tables_in(page):
    return [line for line in page.splitlines() if line.startswith("|")]


class Pages(unittest.TestCase):
    def test_every_published_result_has_its_page_and_plots(self):
        for file in sorted(BENCHMARKS.glob("*.json")):
            with self.subTest(file.name), tempfile.TemporaryDirectory() as folder:
                results = json.loads(file.read_text())
                page = pages.page(results)
                published = file.with_suffix(".md")
                if published.exists():
                    self.assertEqual(tables_in(page), tables_in(published.read_text()), "run bench --from again")
                if results["suite"] in plots.PLOTS:
                    plots.draw(results, Path(folder, "plot.png"))
                    drawn = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
                    not_run = {f"-{name}" for name in streams.STREAMS} - {f"-{row['stream']}" for row in results.get("streams", [])}
                    self.assertEqual(set(drawn), {f"plot{name}.png" for name in set(plots.PLOTS[results["suite"]]) - not_run})
                    for picture in drawn.values():
                        self.assertTrue(picture.startswith(b"\x89PNG"))

    def test_the_gpu_page_names_what_failed_and_what_was_not_measured(self):
        network = {"name": "10x16 k5", "width": 32, "height": 16}
        ours = {"float32": {"step_ms": 0.06, "engine_ms": 0.07}, "tf32": {"error": "no room"}}
        pytorch = {"float32, deterministic": {"ms": 0.3}, "float32, benchmark": {"ms": 0.04},
                   "bf16, compile": {"error": "no compiler"}}
        lines = pages.page({
            "suite": "gpu", "networks": [{**network, "aim_ms": 0.05, "ours": ours, "pytorch": pytorch}],
            "latency": [{**network, "stages": 1, "error": "out of memory"}]}).splitlines()
        for line in ("| 10x16 k5 | 32x16 | float32 | 0.0600 | 0.05 | **1.20** | 0.0400 | **1.50** | 0.0700 | 0.3000 | 0.0400 |  |  |",
                     "- 10x16 k5 32x16, ours tf32: no room",
                     "- 10x16 k5 32x16, pytorch bf16, compile: no compiler",
                     "| 10x16 k5 | 32x16 | 1 |  |  |  |  |  | out of memory |", "Not measured."):
            self.assertIn(line, lines)

    def test_what_the_stream_raises_with_nothing_planted_is_no_alarm_of_the_event(self):
        passer_by = [1058, "local", 120.0, 88.0]
        arms = [{"arm": arm, "kind": kind, "place": "street", "trial": 0, "encoder": "crf 23", "events": raised, "raised": len(raised)}
                for arm in events.ARMS for kind, raised in (
                    ("none", [passer_by]), ("dawn", [[1056, "local", 120.0, 86.0]]),
                    ("cloud", [[1058, "local", 60.0, 88.0], [1200, "local", 120.0, 88.0], [1058, "light"]]))]
        self.assertEqual(events.summed(arms, "dawn", "street")["Millrace"], "0/1 (1)")
        self.assertEqual(events.summed(arms, "cloud", "street")["Millrace"], "1/1")
        self.assertEqual(list(events.caused(arms[2], arms)), arms[2]["events"])


class Published(unittest.TestCase):
    def setUp(self):
        self.machine = measuring.Machine(Path(program.MILLRACE).with_name("millrace-bench"))
        self.addCleanup(self.machine.close)

    def test_networks_are_their_architectures(self):
        for name, millions in (("vgg16", 138.36), ("resnet50", 25.557)):
            network = json.loads((BENCHMARKS / "profiles" / f"{name}.json").read_text())
            weights = sum(module["weight_bytes"] for module in network["modules"])
            self.assertAlmostEqual(weights / 4e6, millions, 2)  # as torchvision counts them

    def test_what_is_published_is_planned_here_as_well(self):
        """PipeDream's configurations and speed-ups."""
        made = tables.published(self.machine, SimpleNamespace(profiles=""))["arms"]
        published = json.loads((BENCHMARKS / "published.json").read_text())["arms"]
        found = {row["arm"]: row for row in published}
        for row in made:
            self.assertAlmostEqual(row.pop("our_figure"), found[row["arm"]].pop("our_figure"), 9)
            self.assertEqual(row, found[row["arm"]])
        self.assertEqual(len(made), 5)

    def test_bubbles_and_two_buffered_weights_are_the_formulas(self):
        rows = tables.schedules(self.machine)
        self.assertEqual(len(rows), 3 + 6 + 8)
        for row in rows:
            self.assertAlmostEqual(row["our_figure"], row["published_figure"], 12, row["what"])
