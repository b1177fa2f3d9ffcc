"""Every frame is accounted for: received = trained + dropped + rejected + in_flight, at every rate of the source."""


import program

# About ten milliseconds a frame, slower than the sources below: frames must wait or be dropped.
SLOW = {"layers": 6, "features": 16, "kernel": 5}


class AccountingTest(program.CliTest):

    def config(self, uri, cut=(2,), task="autoencode", schedule="partime", **source):
        return program.small(uri, source=source, task={"kind": task},
                             pipeline={"stages": len(cut) + 1, "cut": list(cut), "schedule": schedule})

    def slow(self, uri="synth:shapes", **source):
        return {**self.config(uri, **{"width": 96, "height": 96, **source}), "model": SLOW}

    def live(self, frames=None, **source):
        """A stream of 1,000 frames a second."""
        uri = f"synth:shapes?frames={frames}" if frames else "synth:shapes"
        return self.slow(uri, pace="live", fps=1000.0, **source)

    def pictures(self, count):
        return program.write_frames(self.folder / str(count), program.random_frames(count, count))

    def assert_learns(self, config, *options, **counts):
        """A run of `config` has these counts of frames; returns its report."""
        report, _ = self.learn(config, *options)
        self.assert_balanced(report)
        for name, count in counts.items():
            self.assertEqual(report["frames"][name], count, report["frames"])
        return report


class AsFastAsItTakes(AccountingTest):

    def test_nothing_is_dropped(self):
        for uri in (self.pictures(30), "synth:shapes?frames=30"):
            for schedule in ("partime", "sequential"):
                with self.subTest(uri=uri, schedule=schedule):
                    config = program.merged(self.slow(uri, pace="asap"), {"pipeline": {"schedule": schedule}})
                    self.assert_learns(config, received=30, trained=30, dropped=0, rejected=0)

    def test_frames_trains_exactly_as_many(self):
        for task, count, frames, received, trained in (("autoencode", 20, 7, 7, 7), ("next-frame", 20, 7, 8, 7),
                                                       ("autoencode", 5, 50, 5, 5), ("autoencode", 5, 0, 5, 5)):
            with self.subTest(task=task, count=count, frames=frames):
                self.assert_learns(self.config(self.pictures(count), task=task), "--frames", frames,
                                   received=received, trained=trained, dropped=0)

    def test_a_loop_counts_every_pass(self):
        # next-frame: three pairs a pass, none across the seam, so 7 passes of 4 frames, and 3 frames.
        for task, received in (("autoencode", 23), ("next-frame", 31)):
            with self.subTest(task=task):
                self.assert_learns(self.config(self.pictures(4), loop=True, task=task), "--frames", 23,
                                   received=received, trained=23, dropped=0, rejected=received - 23)


class AtTheSourcesRate(AccountingTest):

    def test_newest_drops_what_is_too_much(self):
        report = self.assert_learns(self.live(600), received=600, rejected=0)  # drop = "auto": newest
        self.assertGreater(report["frames"]["dropped"], 0)
        self.assertGreater(report["frames"]["trained"], 0)

    def test_never_drops_nothing(self):
        self.assert_learns(self.live(40, drop="never"), received=40, trained=40, dropped=0, rejected=0)

    def test_frames_trains_exactly_as_many(self):
        self.assert_learns(self.live(drop="never"), "--frames", 9, received=9, trained=9, dropped=0)
        self.assert_learns(self.live(drop="newest"), "--frames", 9, trained=9, rejected=0)
