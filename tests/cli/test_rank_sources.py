"""Several sources train one network: each feeds a pipeline on its own ranks, and only gradients travel between them."""

import os
import signal
import time
import unittest

import program
from servers import web_camera
from test_ranks import ENVIRONMENT, LAUNCH, MPI, RanksTest, processes_under, ranks


@unittest.skipUnless(MPI, "no MPI")
class Sources(RanksTest):
    def sources(self, count, frames=20):
        """`count` folders of frames, and one with all of them in turns."""
        each = [program.random_frames(seed=7 + source, count=frames) for source in range(count)]
        folders = [program.write_frames(self.folder / f"source{i}", images) for i, images in enumerate(each)]
        return list(map(str, folders)), program.write_frames(self.folder / "turns", [image for turn in zip(*each) for image in turn])

    def test_pipelines_with_a_source_each_learn_what_one_process_learns_from_all(self):
        """PipeDream's replicas take samples in turn, so one process with three replicas of each stage is the reference."""
        folders, turns = self.sources(3)
        tables = self.config(schedule="pipedream", optimizer={"kind": "adam", "lr": 0.01, "orthogonal": 0.9})
        tables["source"]["uri"] = turns
        alone = tables | {"pipeline": tables["pipeline"] | {"replicas": [3, 3]}}
        expected = self.run_over(1, alone, "alone")
        tables["source"] |= {"uris": folders}
        for count in 3, 6:
            with self.subTest(count=count):
                got = self.run_over(count, tables, f"over{count}")
                self.assertEqual(got[0], expected[0], "weights differ")
                self.assertEqual(got[1], expected[1][::3], "losses of the first source differ")
                others = [rank["source"] for rank in got[2]["ranks"] if "source" in rank]
                self.assertEqual([(one["received"], one["trained"]) for one in others], [(20, 20)] * 2)

    @program.each(("partime", "graph", 1, 1), ("gpipe", "eager", 1, 1), ("2bw", "graph", 1, 1),
                  ("gpipe", "graph", 4, 2))
    def test_two_equal_sources_teach_each_kind_of_schedule_what_one_does(self, schedule, capture, count, tensor):
        """The last also shares modules within each pipeline: 2 places x 2 parts x 2 copies."""
        folders, _ = self.sources(1, frames=24)
        tables = self.config(schedule=schedule, capture=capture)
        tables["source"]["uri"] = folders[0]
        tables["pipeline"]["tensor"] = tensor
        expected = self.run_over(count, tables, "one")
        tables["source"]["uris"] = [folders[0]] * 2
        got = self.run_over(2 * count, tables, "two")
        self.assertEqual(got[0], expected[0], "weights differ")
        self.assertEqual(got[1], expected[1], "losses differ")

    def test_the_shortest_source_ends_the_run_and_no_frame_is_lost(self):
        folders, _ = self.sources(2)
        short = program.write_frames(self.folder / "short", program.random_frames(seed=1, count=9))
        for uris in ([short, folders[0]], [folders[0], short]):
            tables = self.config(schedule="gpipe")  # 4 frames an update
            tables["source"]["uris"] = uris
            _, losses, report = self.run_over(2, tables, "short")
            self.assertEqual(report["frames"]["trained"], 8)
            other = report["ranks"][1]["source"]
            self.assertEqual(other["trained"], 8)
            self.assertEqual(other["received"], other["trained"] + other["dropped"] + other["rejected"])

    def test_a_next_frame_is_predicted_at_each_source(self):
        folders, _ = self.sources(2)
        tables = self.config(schedule="partime", task={"kind": "next-frame"}, guard={"kind": "roll-back"})
        tables["source"]["uris"] = folders
        report = self.run_over(2, tables, "next")[2]
        self.assertEqual((report["frames"]["trained"], report["ranks"][1]["source"]["trained"]), (19, 19))

    def test_a_stop_does_not_wait_for_a_camera_that_is_away(self):
        server = web_camera(self, self.folder, plain={}, stalls={"count": 12, "after": b"--x\r\n"})
        tables = self.config(schedule="pipedream", stages=1, cut=())
        tables["source"] |= {"uris": [f"{server.url}/plain", f"{server.url}/stalls"], "pace": "live"}
        del tables["source"]["uri"]
        report = self.folder / "report.json"
        process = self.spawn([*LAUNCH, "-n", "2", program.MILLRACE, "run", self.write(tables), "--report", report], env=ENVIRONMENT)
        self.read_until(process, "frame ")
        self.wait_until(lambda: len(processes_under(process.pid)) == 2, process=process)
        time.sleep(1)  # the other camera gives no more
        os.kill(processes_under(process.pid)[0], signal.SIGTERM)
        self.finish(process)
        self.assertGreater(self.report()["frames"]["trained"], 0)

    def test_what_does_not_go_with_several_sources_is_one_line(self):
        folders, _ = self.sources(2)
        small = program.write_frames(self.folder / "small", program.random_frames(3, 4, width=12, height=8))
        self.assert_ranks_refuse(
            program.merged(self.config(), {"source": {"uris": folders}}),
            (3, {}, "source.uris", "a multiple of 2 ranks"),
            (2, {"pipeline": {"replicas": [2, 1], "schedule": "pipedream"}}, "pipeline.replicas", "combined with replicas"),
            (2, {"monitor": {"policy": "skip"}}, "monitor.policy", "\"drop\""),
            (2, {"correction": {"kind": "local"}}, "correction.kind", "heads"),
            (2, {"source": {"width": 0, "height": 0, "uris": [folders[0], small]}}, "source.uris", "are 12x8"))
        outcome = program.call("run", self.folder / "config.toml")
        self.assert_refused(program.BAD_USAGE, outcome, "source.uris", "mpirun -n")

    def test_a_source_that_cannot_be_opened_is_one_line_that_names_the_rank(self):
        folders, _ = self.sources(1)
        tables = self.config()
        tables["source"]["uris"] = [folders[0], "file:///gone.mp4"]
        self.assert_refused(program.NO_SOURCE, ranks(2, "run", self.write(tables)), "rank 1", "gone.mp4")
