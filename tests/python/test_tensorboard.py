"""`millrace tensorboard`: the official reader must find in the event file what the log says."""

import importlib.util
import json
import unittest

import program


@unittest.skipUnless(importlib.util.find_spec("tensorboard"), "needs the package tensorboard")
class Tensorboard(program.CliTest):
    def assert_holds(self, log, lines):
        """Returns what the command says."""
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        said = self.succeed("tensorboard", log, self.folder / "board").out
        self.assertEqual(len(list((self.folder / "board").iterdir())), 1)
        found = EventAccumulator(str(self.folder / "board"), size_guidance={"scalars": 0})
        found.Reload()
        for tag, of in (("loss", lambda line: line["loss"]), ("stage_ms/1", lambda line: line["stage_ms"][1])):
            events = [(event.step, event.wall_time) for event in found.Scalars(tag)]
            self.assertEqual(events, [(line["frame"], line["time"]) for line in lines])
            for event, line in zip(found.Scalars(tag), lines):
                self.assertAlmostEqual(event.value, of(line), delta=1e-6 * abs(of(line)))
        return said

    def test_it_holds_the_log_and_again_when_that_has_grown(self):
        log = self.folder / "run.jsonl"
        uri = program.write_frames(self.folder / "frames", program.random_frames(1, 300, 8, 8))
        self.learn({"source": {"uri": uri, "width": 8, "height": 8}, "model": {"layers": 3, "features": 2, "kernel": 3},
                    "pipeline": {"stages": 2, "cut": [2]}, "output": {"log": log, "log_every": 10}})
        lines = program.lines_of(log)
        self.assertEqual(len(lines), 30)
        self.assert_holds(log, lines)
        more = {"frame": 310, "time": 2e9, "loss": 0.5, "stage_ms": [1, 2], "fps": None}
        with log.open("a") as file:
            file.write('{"frame":300,"lo\n' + json.dumps(more) + "\n")
        self.assertIn("31 frames, 1 lines skipped", self.assert_holds(log, [*lines, more]))

    def test_bad_usage(self):
        for log in ("/nowhere.jsonl", program.VIDEO):
            self.assert_refused(program.BAD_USAGE, program.call("tensorboard", log, self.folder), str(log))
        log = self.folder / "one.jsonl"
        log.write_text('{"frame":0,"time":1.5,"loss":0.5}\n')
        self.assert_refused(program.FAILED, program.call("tensorboard", log, "/proc/nowhere"), "/proc/nowhere")
