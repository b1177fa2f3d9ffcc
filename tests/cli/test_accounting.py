"""Every frame is accounted for: received = trained + dropped + rejected + in_flight, whatever the source's rate."""

import time
import unittest

import program

SMALL = {"layers": 2, "features": 2, "kernel": 3}
# Some ten milliseconds a frame: slow beside the sources below, so that frames must wait or go.
SLOW = {"layers": 6, "features": 16, "kernel": 5}


class AccountingTest(program.CliTest):

    def config(self, uri, model=SMALL, cut=(2,), task="autoencode", schedule="partime", **source):
        size = {"width": 24, "height": 16} if model is SMALL else {"width": 96, "height": 96}
        return {"source": {"uri": uri, **size, **source}, "task": {"kind": task}, "model": model,
                "pipeline": {"stages": len(cut) + 1, "cut": list(cut), "schedule": schedule}}

    def pictures(self, count):
        return program.write_frames(self.folder / str(count), program.random_frames(count, count))

    def assert_frames(self, report, **counts):
        self.assert_balanced(report)
        for name, count in counts.items():
            self.assertEqual(report["frames"][name], count, report["frames"])


class AsFastAsItTakes(AccountingTest):

    def test_nothing_is_dropped(self):
        for uri in (self.pictures(30), "synth:shapes?frames=30"):
            for schedule in ("partime", "sequential"):
                with self.subTest(uri=uri, schedule=schedule):
                    report, _ = self.learn(self.config(uri, SLOW, schedule=schedule, pace="asap"))
                    self.assert_frames(report, received=30, trained=30, dropped=0, rejected=0)

    def test_frames_trains_exactly_as_many(self):
        for task, received in (("autoencode", 7), ("next-frame", 8)):  # 7 samples of pairs take 8 frames
            with self.subTest(task=task):
                report, _ = self.learn(self.config(self.pictures(20), task=task), "--frames", 7)
                self.assert_frames(report, received=received, trained=7, dropped=0)

    def test_frames_of_more_than_there_are(self):
        report, _ = self.learn(self.config(self.pictures(5)), "--frames", 50)
        self.assert_frames(report, received=5, trained=5, dropped=0)

    def test_frames_0_is_all(self):
        report, _ = self.learn(self.config(self.pictures(5)), "--frames", 0)
        self.assert_frames(report, received=5, trained=5, dropped=0)


class AtTheSourcesRate(AccountingTest):

    def test_newest_drops_what_is_too_much(self):
        config = self.config("synth:shapes?frames=600", SLOW, pace="live", fps=1000.0)  # drop = "auto": newest
        report, _ = self.learn(config)
        self.assert_frames(report, received=600, rejected=0)
        self.assertGreater(report["frames"]["dropped"], 0)
        self.assertGreater(report["frames"]["trained"], 0)

    def test_never_drops_nothing(self):
        config = self.config("synth:shapes?frames=40", SLOW, pace="live", drop="never", fps=1000.0)
        report, _ = self.learn(config)
        self.assert_frames(report, received=40, trained=40, dropped=0, rejected=0)

    def test_frames_under_never(self):
        config = self.config("synth:shapes", SLOW, pace="live", drop="never", fps=1000.0)
        report, _ = self.learn(config, "--frames", 9)
        self.assert_frames(report, received=9, trained=9, dropped=0)

    def test_frames_under_newest(self):
        config = self.config("synth:shapes", SLOW, pace="live", drop="newest", fps=1000.0)
        report, _ = self.learn(config, "--frames", 9)
        self.assert_frames(report, trained=9, rejected=0)

    def test_live_keeps_the_sources_rate(self):
        begin = time.monotonic()
        report, _ = self.learn(self.config("synth:shapes?frames=21", pace="live", drop="never", fps=10.0))
        self.assertGreater(time.monotonic() - begin, 2.0)  # frame 20 is due 20 periods after frame 0
        self.assert_frames(report, received=21, trained=21, dropped=0)


class ShortStreams(AccountingTest):

    def test_fewer_frames_than_stages(self):
        for count in (1, 2):
            for task, trained in (("autoencode", count), ("next-frame", count - 1)):
                with self.subTest(count=count, task=task):
                    report, _ = self.learn(self.config(self.pictures(count), cut=(1, 2, 3), task=task))
                    self.assert_frames(report, received=count, trained=trained, dropped=0, rejected=count - trained)
                    self.assertEqual(report["updates"], [0, 0, 0, trained])

    def test_one_frame_through_the_sequential_pipeline(self):
        report, _ = self.learn(self.config(self.pictures(1), cut=(1, 2, 3), schedule="sequential"))
        self.assert_frames(report, received=1, trained=1)
        self.assertEqual(report["updates"], [1, 1, 1, 1])

    def test_no_frame(self):
        (self.folder / "empty").mkdir()
        config = self.config(f"images:{self.folder}/empty", cut=(1, 2, 3))
        file = program.write_toml(self.folder / "config.toml", config)
        self.assert_refused(program.NO_SOURCE, program.call("run", file))


class CorruptPictures(AccountingTest):
    """--frames counts frames that are trained: one that cannot be decoded is none of them."""

    def spoilt(self, count, *corrupt):
        uri = self.pictures(count)
        for number in corrupt:
            (self.folder / str(count) / f"{number:05d}.png").write_bytes(b"")
        return uri

    def test_frames_are_trained_frames(self):
        report, _ = self.learn(self.config(self.spoilt(10, 2, 4)), "--frames", 6)
        self.assert_frames(report, trained=6, rejected=2, dropped=0)

    def test_a_loop_rejects_it_at_every_pass(self):
        report, _ = self.learn(self.config(self.spoilt(4, 2), loop=True), "--frames", 9)
        self.assert_frames(report, trained=9, dropped=0)
        self.assertGreaterEqual(report["frames"]["rejected"], 2)


class Loops(AccountingTest):

    def test_a_loop_counts_every_pass(self):
        # Three pairs a pass: none over the seam. 7 passes of 4 frames, and 3 frames.
        for task, received in (("autoencode", 23), ("next-frame", 31)):
            with self.subTest(task=task):
                config = self.config(self.pictures(4), loop=True, task=task)
                report, _ = self.learn(config, "--frames", 23)
                self.assert_frames(report, received=received, trained=23, dropped=0)


if __name__ == "__main__":
    unittest.main()
