"""What is taught stays learned, whatever is seen meanwhile, and its answer can be read. Samples that are learned from again: as many
as asked, counted apart, the same in every run."""

import numpy
import torch
from safetensors.torch import load_file

import program

TURN = 40


class Labels(program.CliTest):
    def frames(self, turns, noise):
        """Two scenes in turns, which differ in one small thing amid others that move."""
        chance = numpy.random.default_rng(noise)
        scene = numpy.random.default_rng(1).integers(40, 200, (16, 24, 3))
        frames = []
        for n in range(turns * TURN):
            frame = scene + chance.normal(0, 6, scene.shape)
            frame[2:5, n % 20:n % 20 + 3] = 250
            if n // TURN % 2:
                frame[9:13, 6:10] = (220, 30, 30)
            frames.append(frame.clip(0, 255).astype(numpy.uint8))
        return numpy.stack(frames)

    def pictures(self, name, turns, noise):
        return program.write_frames(self.folder / name, self.frames(turns, noise))

    def labels(self, name, turns, late=0.0):
        path = self.folder / name
        rows = [f"{k * TURN / 10 + (late if k else 0):.1f},{['empty', 'parcel'][k % 2]}" for k in range(turns)]
        path.write_text("\n".join(["time,class", *rows]) + "\n")
        return path

    def config(self, uri, labels, **tables):
        return {"source": {"uri": uri, "width": 24, "height": 16, "fps": 10.0},
                "task": {"kind": "label", "loss": "cross-entropy", "labels": labels},
                "pipeline": {"stages": 2, "cut": [2], "schedule": "pb"}, **tables}

    def teach(self, late=0.0, **tables):
        weights = self.folder / "w.safetensors"
        tables = program.merged({"output": {"weights": weights}}, tables)
        config = self.config(self.pictures("seen", 4, 1), self.labels("seen.csv", 4, late))
        return self.reported("run", self.write(program.merged(config, tables)))[0], weights

    def evaluated(self, weights, *more):
        rest = f"task.labels={self.labels('rest.csv', 6)}"
        report, outcome = self.reported("evaluate", weights, self.pictures("rest", 6, 2),
                                        *program.sets("source.fps=10.0", rest), *more)
        return report, outcome.out

    @program.each((10, False), (0, True))
    def test_labels_beyond_the_end_are_told_of_unless_the_limit_is_the_end(self, frames, told):
        rows = [f"{n},{('empty', 'parcel')[n % 2]}" for n in (*range(20), 9000)]
        (self.folder / "some.csv").write_text("\n".join(["frame,class", *rows]))
        config = self.write(self.config(self.pictures("seen", 1, 1), self.folder / "some.csv"))
        outcome = self.succeed("run", config, "--frames", frames)
        self.assertEqual("for frames beyond the end, up to 9000" in outcome.err, told, outcome)

    def test_a_run_that_goes_on_names_the_same_classes(self):
        weights = self.folder / "w.safetensors"
        self.teach(output={"weights": weights}, checkpoint={"dir": self.folder / "state"})
        # Of a plug-in that somebody else's file names, nothing is loaded.
        weights.write_bytes(weights.read_bytes().replace(b"plugins = []", b"plugins=['']"))
        for table, classes, code in (({"model": {"weights": self.folder / "w.safetensors"}}, ["parcel", "empty"], 2),
                                     ({"model": {"weights": self.folder / "w.safetensors"}}, ["empty", "parcel"], 0),
                                     ({"checkpoint": {"dir": self.folder / "state", "resume": True}}, ["parcel", "empty"], 2)):
            tables = program.merged(self.config(self.pictures("seen", 4, 1), self.labels("seen.csv", 4)), table)
            config = self.write(program.merged(tables, {"task": {"classes": classes}}))
            for call in (("check", config), ("run", config, "--frames", "9", "--quiet")):
                outcome = program.call(*call)
                self.assert_code(code, outcome)
                self.assertEqual("its classes are [\"empty\",\"parcel\"], in this order" in outcome.err, code == 2, outcome.err)

    def test_what_is_taught_stays_for_every_schedule(self):
        for schedule in ("sequential", "pb", "partime", "pipedream", "gpipe"):
            for late in (0.0, 1.0):
                with self.subTest(schedule=schedule, late=late):
                    # Classes in another order than the file's, which judges by name.
                    report, weights = self.teach(
                        late, pipeline={"stages": 2, "cut": [2], "schedule": schedule},
                        task={"classes": ["parcel", "empty"] if late else []})
                    self.assertEqual(report["replay"]["kind"], "ridge")
                    after, out = self.evaluated(weights)
                    self.assertGreaterEqual(after["accuracy"]["mean"], 0.98, out)
                    self.assertIn("better", out)
        report, weights = self.teach(0.0, replay={"kind": "none"})
        self.assertEqual(self.evaluated(weights)[0]["accuracy"]["mean"], 0.5, "the last label's bias")
        self.assertEqual(report["accuracy_on_return"]["mean"], 0, "and so it is exposed, however well it scores")
        self.assertGreater(report["accuracy"]["mean"], 0.8)

    def test_two_runs_end_alike_with_the_answer_written_or_not_and_pytorch_computes_the_same(self):
        report, weights = self.teach()
        first = load_file(weights)
        log, video = self.folder / "log.jsonl", self.folder / "v.mkv"
        self.teach(output={"log": log, "log_every": 1, "video": video})
        self.assertTrue(all(torch.equal(first[name], value) for name, value in load_file(weights).items()))
        answers = [line["answer"] for line in program.lines_of(log)]
        self.assertEqual((answers[0]["class"], answers[-1]["class"]), (None, "parcel"))
        self.assertGreater(answers[-1]["probability"], 0.9)
        self.assertTrue(video.exists())
        net = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, 2, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(16, 16, 3, 2, padding=1),
                                  torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(384, 2))
        net.load_state_dict(first)
        rest = torch.from_numpy(self.frames(6, 2)).permute(0, 3, 1, 2).float() / 255
        hits = (net(rest).argmax(1) == torch.arange(6 * TURN) // TURN % 2).float().mean().item()
        rested, out = self.evaluated(weights)
        self.assertAlmostEqual(rested["accuracy"]["mean"], hits)
        self.assertEqual(rested["neither"], 0, out)
        self.assertGreater(report["accuracy_on_return"]["mean"], 0.95)
        self.assertEqual(report["learned"]["strongest"], "majority class")
        self.assertTrue(report["learned"]["yes"])
        self.assertEqual(set(report["answer"]), {"class", "probability", "neither"})
        self.assertEqual(report["answer"]["class"], "parcel")
        # A frame unlike all that was taught.
        noise = program.write_frames(self.folder / "noise", program.random_frames(3, 20))
        report, outcome = self.reported("evaluate", weights, noise, *program.sets("task.labels=", "source.width=24", "source.height=16"),
                                        code=program.FAILED)
        self.assertIn("neither   1 of the frames", outcome.out)
        self.assertEqual(report["answer"], {"class": None, "probability": None, "neither": True})

    def test_folders_are_classes_by_name(self):
        def folders(name, noise, *classes):
            for turn, one in classes:
                program.write_frames(self.folder / name / one, self.frames(2, noise)[turn * TURN:][:TURN])
            return f"images:{self.folder / name}"

        both, parcels = folders("both", 1, (0, "empty"), (1, "parcel")), folders("parcels", 2, (1, "parcel"))
        for classes, known in ([], ["empty", "parcel"]), (["parcel", "cat", "empty"],) * 2:
            weights = self.folder / "w.safetensors"
            task = {"kind": "label", "loss": "cross-entropy", "classes": classes}
            config = self.write(self.config(both, "", task=task, output={"weights": weights}))
            self.assertIn("#   classes: " + ", ".join(f"{n} {name}" for n, name in enumerate(known)) + "\n",
                          self.succeed("check", config).out)
            self.reported("run", config)
            report, outcome = self.reported("evaluate", weights, parcels)
            self.assertEqual((report["accuracy"]["mean"], report["answer"]["class"]), (1, "parcel"), outcome)
        other = folders("other", 3, (1, "parcel"), (1, "parcell"))
        words = 'the folder "parcell" is none of the classes', 'the nearest is "parcel"'
        self.assert_each_refused(((("evaluate", weights, other), *words),
                                  (("check", config, *program.sets(f"source.uri={other}")), *words)))

    def test_a_resumed_run_remembers(self):
        checkpoint = {"dir": self.folder / "state", "resume": True}
        _, weights = self.teach(checkpoint=checkpoint)
        one = self.folder / "one.csv"
        one.write_text("time,class\n0,empty\n")
        config = self.config(self.pictures("empty", 1, 3), one, checkpoint=checkpoint, output={"weights": weights})
        config["task"]["classes"] = ["empty", "parcel"]
        said = self.succeed("run", self.write(config)).err
        self.assertIn('has no frame of the class "parcel"', said)
        self.assertNotIn("does not fit", said)
        self.assertGreaterEqual(self.evaluated(weights)[0]["accuracy"]["mean"], 0.98)

    def test_what_does_not_fit_is_one_line(self):
        uri, labels = self.pictures("seen", 1, 1), self.labels("seen.csv", 2)
        good = self.config(uri, labels)
        for tables, words in (({"task": {"classes": ["empty", "parcel", "cat"]}, "model": {"out_channels": 2}}, ("task.classes", "3 names for 2 classes")),
                              ({"task": {"classes": ["empty", "pracel"]}}, ("task.labels", 'the nearest is "pracel"')),
                              ({"replay": {"kind": "ridge"}, "task": {"kind": "autoencode", "labels": "", "loss": "mse"},
                                "model": {"preset": "partime-cnn"}}, ("replay.kind", 'is for task.kind "label"')),
                              ({"replay": {"kind": "ridge"}, "pipeline": {"cut": [1]},
                                "model": {"preset": "layers", "layer": [{"type": "conv", "out": 2, "kernel": 3}, {"type": "avgpool", "kernel": 16}]}},
                               ("replay.kind", "ends in a linear layer"))):
            with self.subTest(words=words):
                self.assert_refuses("check", program.merged(good, tables), *words)
        (self.folder / "three.csv").write_text("time,class\n0,a\n1,b\n2,c\n")
        self.assert_refuses("check", program.merged(good, {"task": {"labels": self.folder / "three.csv"}, "model": {"out_channels": 2}}),
                            "model.layer", "2 outputs, the source 3 classes")
        self.assert_refuses("check", {"task": {"kind": "label"}}, "task.classes", "names are needed")


class Replay(program.CliTest):
    def config(self, uri="synth:shapes?frames=60", task="autoencode", source={}, **replay):
        return program.small(uri, source=source, task={"kind": task}, replay=replay)

    def test_summary_log_and_picture_show_only_fresh_frames(self):
        log = self.folder / "log.jsonl"
        output = {"log": log, "log_every": 1, "prediction": self.folder / "last.png"}
        report, outcome = self.reported("run", self.write({**self.config(kind="recent", size=8, share=0.5), "output": output}))
        self.assertEqual(report["updates"][1], 60 + report["frames"]["replayed"])
        self.assertEqual(report["replay"]["kept"], 8)
        self.assertRegex(outcome.out, r"60 trained .* replayed, 0\.\d+ of all trained samples")
        lines = program.lines_of(log)
        self.assertEqual([line["frame"] for line in lines], list(range(60)))
        self.assertEqual([line["source_frame"] for line in lines], list(range(60)))
        self.assertTrue((self.folder / "last.png").exists())

    def test_frames_and_checkpoints_count_fresh_frames(self):
        config = self.config("synth:shapes", kind="recent", size=8, share=0.5)
        config["checkpoint"] = {"dir": self.folder / "kept", "every": 10, "resume": True}
        self.learn(config, "--frames", 40, trained=40)
        report, _ = self.learn(config, "--frames", 5, trained=5)
        self.assertEqual(report["run"]["resumed"]["frames"], 40)

    def test_a_file_read_as_fast_as_it_goes_leaves_none(self):
        report, _ = self.learn(self.config(kind="reservoir", size=16))
        self.assertEqual(report["frames"]["replayed"], 0)
