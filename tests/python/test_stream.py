"""What a user with a live source loses if frames pile up, results wait, counts are wrong or River's words mean another."""

import asyncio
import contextlib
import importlib.util
import io
import itertools
import runpy
import sys
import threading
import time
import types
from unittest import mock

import numpy
import torch
from PIL import Image
from torch import nn

import millrace
import program
from test_package import PLAIN, PackageTest, network, pictures, plain

PATIENCE = 120  # seconds; only a hang takes them


def trainer(**keys):
    return plain(**{"schedule": "partime", "stages": 2, "cut": [2], **keys})


class Stream(PackageTest):
    @program.each(("sequential", []), ("partime", [2]), ("pipedream", [2]))
    def test_a_result_comes_before_the_generators_next_frame(self, schedule, cut):
        """After a burst, a camera that shows frame n + 1 only when the result of frame n is there."""
        arrived, late = [threading.Event() for _ in range(60)], []

        def camera():
            for n, frame in enumerate(pictures(60)):
                if n > 20 and not arrived[n - 1].wait(PATIENCE):
                    late.append(n - 1)
                    return
                yield frame

        one = trainer(schedule=schedule, stages=len(cut) + 1, cut=cut)
        for result in one.run(camera()):
            arrived[result.frame].set()
        self.assertEqual(late, [])
        self.assertEqual(one.report()["frames"]["trained"], 60)

    def test_the_newest_frame_wins_and_drops_are_counted(self):
        go_on, seen = threading.Event(), []

        def see(result):
            go_on.wait(PATIENCE)
            seen.append(result)

        one = trainer()
        one.on_result(see)  # which stops the pipeline once it has no room for results
        numbers = [one.submit(frame) for frame in itertools.islice(itertools.cycle(pictures(10)), 300)]
        self.assertEqual(numbers, list(range(300)))
        frames = one.report()["frames"]
        self.assertEqual(frames["received"], 300)
        self.assertGreater(frames["dropped"], 150)
        self.assert_accounted(frames)
        go_on.set()
        one.close()
        frames = one.report()["frames"]
        self.assertEqual((frames["received"], frames["in_flight"], frames["trained"]), (300, 0, len(seen)))
        self.assert_accounted(frames)
        self.assertEqual(seen[-1].frame, 299)
        self.assertEqual([result.index for result in seen], list(range(len(seen))))
        self.assertEqual([r.frame for r in seen], sorted({r.frame for r in seen}))

    def test_frames_that_a_slow_loop_misses_are_dropped_and_no_pair_spans_one(self):
        one = trainer(task="next-frame", source={"uri": "synth:shapes?frames=300", "width": 16, "height": 16,
                                                 "fps": 200.0, "pace": "live"})
        for _ in one.run(ahead=2):
            time.sleep(0.05)
        frames = one.report()["frames"]
        self.assertEqual(frames["received"], 300)
        self.assertGreater(frames["dropped"], 0)
        self.assertGreater(frames["rejected"], 1)  # those without a next frame
        self.assert_accounted(frames)

    def test_with_drop_never_every_submitted_frame_is_learned_as_by_run(self):
        frames = pictures(40)
        whole = [result.loss for result in trainer().run(frames)]
        one = trainer(source={"drop": "never"})
        for n, frame in enumerate(frames):
            one.submit(frame, time=100 + n / 25)
            frame.zero_()  # it was copied
        one.close()
        results = [one.poll() for _ in frames]
        self.assertEqual([result.loss for result in results], whole)
        self.assertEqual([result.time for result in results], [100 + n / 25 for n in range(40)])
        self.assertIsNone(one.poll())
        self.assertAlmostEqual(one.report()["realtime"]["F"], 25, delta=0.5)
        one.submit(frames[0])  # goes on
        self.assertEqual(one.poll(PATIENCE).index, 0)
        self.assertEqual(len(one.state_dict()), 6)
        for _ in range(2):  # results stay
            one.submit(frames[0])
            one.close()
        self.assertEqual([one.poll().frame, one.poll().frame], [0, 0])

    def test_a_run_that_was_left_or_refused_takes_nothing_from_another(self):
        one, frames = trainer(), pictures(10)
        for more in (0, 1):
            go_on = threading.Event()

            def blocked():
                yield frames[0]
                go_on.wait(PATIENCE)
                yield from frames[:more]

            for _ in one.run(blocked()):
                break
            reader, = (thread for thread in threading.enumerate() if thread.name == "millrace-frames")

            def following():
                yield frames[0]
                go_on.set()
                reader.join(PATIENCE)
                yield from frames[1:]

            running, other = one.run(following()), one.run(frames)
            next(running)
            with self.assertRaisesRegex(millrace.Error, "it is already running"):
                next(other)
            self.assertEqual(len(list(running)), 9)
            self.assertEqual(one.report()["frames"]["received"], 10)

    def test_report_and_weights_may_be_asked_for_by_other_threads(self):
        made, over = trainer(), threading.Event()

        def ask():
            while not over.is_set():
                made.report()
                self.assertIsInstance(made.remarks, list)
                made.load_state_dict(made.state_dict())

        asking = threading.Thread(target=ask)
        asking.start()
        for _ in range(6):
            for frame in pictures(5):
                made.submit(frame)
            made.close()
        over.set()
        asking.join(PATIENCE)
        self.assertFalse(asking.is_alive())
        made.close()
        self.assertFalse(made._halting.alive, "one series after another needs no more memory")

    def test_targets_are_submitted_too(self):
        one = plain()
        for frame, told in zip(pictures(3), [pictures(1)[0], None, pictures(1)[0]]):
            one.submit(frame, told)
            result = one.poll(PATIENCE)
            self.assertEqual(result.loss != result.loss, told is None)
        with self.assertRaisesRegex(millrace.Error, "submit: earlier frames had targets"):
            one.submit(frame)
        for other in (lambda: one.run([]), lambda: one.learn_one(frame)):
            with self.assertRaisesRegex(millrace.Error, "it learns from submitted frames: close"):
                other()
        one.close()

    def test_results_are_awaited_and_none_is_lost_to_an_impatient_reader(self):
        async def learn(one):
            async def camera():
                for frame in pictures(12):
                    one.submit(frame)
                    await asyncio.sleep(0.02)
                await asyncio.to_thread(one.close)
            feeding, frames = asyncio.create_task(camera()), []
            while len(frames) < 6:
                with contextlib.suppress(asyncio.TimeoutError):
                    frames.append((await asyncio.wait_for(anext(aiter(one)), 0.002)).frame)
            frames += [result.frame async for result in one]
            await feeding
            return frames
        self.assertEqual(asyncio.run(learn(trainer(source={"drop": "never"}))), list(range(12)))

    def test_what_a_callback_raises_is_raised_where_the_user_waits(self):
        def broken(result):
            raise KeyError("mine")
        one = trainer()
        one.on_result(broken)
        with self.assertRaises(KeyError):
            for frame in itertools.cycle(pictures(3)):
                one.submit(frame)
        one.close()

    def test_a_callback_may_not_wait_for_its_own_results(self):
        one, frame, said = trainer(), pictures(1)[0], []
        begun = one.run([frame])

        def see(_):
            closing.wait(PATIENCE)
            time.sleep(0.1)  # close() waits for this thread
            for act in (one.close, one.state_dict, lambda: one.load_state_dict({}), lambda: one.learn_one(frame),
                        lambda: one.predict([frame]), lambda: one.submit(frame), lambda: next(begun)):
                with self.assertRaises(millrace.Error) as refused:
                    act()
                said.append(str(refused.exception))

        closing = threading.Event()
        one.on_result(see)
        one.submit(frame)
        closing.set()
        one.close()
        self.assertEqual(len(said), 7)
        for words in said:
            self.assertIn("can't be called from on_result()'s function", words)

    def test_poll_waits_for_the_first_frame_too(self):
        one = trainer()
        self.assertIsNone(one.poll())
        threading.Timer(0.2, one.submit, pictures(1)).start()
        self.assertEqual(one.poll(PATIENCE).frame, 0)
        one.close()

    def test_a_prediction_that_fails_leaves_the_trainer_free(self):
        frames = pictures(2)
        one = plain()
        for mode in ("", "one"):
            for bad, error in ((None, "is a NoneType"), (torch.rand(3, 5, 5), "has the shape")):
                with self.assertRaisesRegex(millrace.Error, error):
                    one.predict([frames[0], bad])
                self.assertEqual(one._mode, mode)
            one.learn_one(frames[0])
        one.close()
        one.partial_fit(frames)

    def test_the_report_is_the_programs(self):
        config = program.small(output={"report": f"{self.folder}/report.json"})
        self.succeed("run", self.write(config), "--frames", "40")
        of_program = self.report()
        one = trainer(task="autoencode")
        losses = []
        for result in one.run(pictures(40)):
            losses.append(result.loss)
            if result.index == 20:
                during = one.report()
        report = one.report()
        self.assertLessEqual(set(of_program), set(report))
        self.assert_accounted(during["frames"])
        self.assertGreater(during["loss"]["mean"], 0)
        self.assertAlmostEqual(report["loss"]["mean"], numpy.mean(losses), places=6)
        self.assertAlmostEqual(report["psnr_db"]["mean"], -10 * numpy.log10(numpy.mean(losses)), places=4)
        self.assertEqual(report["guard"], {**report["guard"], "roll_backs": 0})

    def test_frames_beyond_0_to_1_are_refused(self):
        byte = torch.full((3, 16, 24), 200.0)
        cases = {"frame 0: has values from 200 to 200; they must be in 0..1; divide bytes by 255": byte,
                 "frame 0: has values from -0.5 to -0.5; they must be in 0..1": torch.full((3, 16, 24), -0.5),
                 "frame 0: has values from nan to nan; they must be in 0..1": torch.full((3, 16, 24), numpy.nan)}
        for words, frame in cases.items():
            for learn in (lambda: list(trainer().run([frame])), lambda: trainer().submit(frame),
                          lambda: trainer().learn_one(frame)):
                self.assert_errors({words: learn})

    def frames(self, turns, seed):
        """Bright on the left or on the right, in turns of 30, given as (frame, class)."""
        noise = torch.Generator().manual_seed(seed)
        for n in range(turns * 30):
            frame, side = 0.5 * torch.rand(3, 12, 16, generator=noise), n // 30 % 2
            frame[:, :, 8 * side:8 * side + 8] += 0.3
            yield frame, side

    def test_a_config_whose_labels_come_over_http(self):
        path = self.write({
            "task": {"kind": "label", "labels": "http", "classes": ["left", "right"], "loss": "cross-entropy"},
            "model": {"preset": "layers", "layer": [{"type": "flatten"}, {"type": "linear", "out": 2}]}, "pipeline": {"stages": 1}})
        taught = millrace.Trainer(path)
        list(taught.run(self.frames(2, 1)))
        frames, sides = zip(*self.frames(4, 2))
        answers = [int(result.prediction.argmax()) for result in taught.run((frame, None) for frame in frames)]
        self.assertGreaterEqual(numpy.mean(numpy.equal(answers, sides)), 0.98)
        with self.assertRaisesRegex(millrace.Error, "task.classes: 3 names for 2 classes"):
            next(iter(millrace.Trainer(path, classes=["a", "b", "c"]).run(self.frames(1, 1))))

    def test_labels_of_the_configs_file_teach_as_in_the_program(self):
        frames = numpy.stack([(255 * frame).permute(1, 2, 0).byte().numpy() for frame, _ in self.frames(4, 1)])
        labels = self.folder / "classes.csv"
        labels.write_text("time,class\n" + "".join(f"{3 * n},{('left', 'right')[n % 2]}\n" for n in range(4)))
        path = self.write({"source": {"uri": program.write_frames(self.folder / "frames", frames), "fps": 10.0},
                           "task": {"kind": "label", "labels": labels, "loss": "cross-entropy"},
                           "pipeline": {"stages": 1}})
        one = millrace.Trainer(path)
        list(one.run())
        told, there = one.report(), self.reported("run", path)[0]
        self.assertEqual([told["replay"]["by_class"], told["answer"]["class"]], [there["replay"]["by_class"], "right"])
        self.assertAlmostEqual(told["loss"]["mean"], there["loss"]["mean"])

    def test_three_lines_watch_a_stream_and_show_what_is_new(self):
        bars = []
        stub = types.SimpleNamespace(tqdm=lambda items, **_: bars.append(1) or items)
        self.enterContext(mock.patch.dict(sys.modules, {"tqdm": stub, "tqdm.auto": stub}))
        frames = program.frames_with_an_event()
        stream = program.write_frames(self.folder / "frames\udce9", frames)  # no UTF-8
        seen = list(millrace.watch(stream, source={"width": 16, "height": 16, "fps": 10.0}, novelty={"minimum": 1}))
        self.assertEqual(bars, [1])
        last = seen[-1]
        self.assertEqual((last.picture * 255).round().permute(1, 2, 0).tolist(), frames[-1].tolist())
        new = [one for one in seen if one.event]
        self.assertEqual([one.event["frame"] for one in new], [380])
        for frame, prediction, novelty in new:
            self.assertEqual(frame.shape, prediction.shape)
            self.assertGreaterEqual(novelty, 4)
        shown = numpy.asarray(Image.open(io.BytesIO(millrace.Result(
            0, 0.0, last.prediction, 0, 0.0, picture=last.picture, event={"box": [4, 4, 8, 8]})._repr_png_())))
        self.assertEqual(shown.shape, (384, 768, 3))
        self.assertEqual([shown[96, 150].tolist(), shown[0, 0].tolist()], [[230, 159, 0], frames[-1][0, 0].tolist()])

    def test_fit_forgets_partial_fit_goes_on_a_clone_knows_nothing_and_classes_have_names(self):
        frames = pictures(10)
        one = plain()
        first = one.fit(frames).state_dict()
        more = one.partial_fit(frames, frames).state_dict()
        self.assertEqual([(first[name] == value).all().item() for name, value in more.items()], [False] * len(more))
        again = one.fit(frames)
        net = network()
        net.load_state_dict(first)
        for frame, predicted in zip(frames, again.predict(frames), strict=True):
            torch.testing.assert_close(predicted, net(frame[None])[0])
        self.assert_same(again.state_dict(), net.state_dict())
        keys = {"schedule": "sequential", **PLAIN, "stages": 1}.items()
        self.assertEqual(str(one), f"Trainer(Sequential, {', '.join(f'{key}={value!r}' for key, value in keys)})")
        fresh = one.clone({"lr": 0.2})
        torch.testing.assert_close(fresh.predict(frames[:1])[0], network()(frames[0][None])[0])
        self.assertIn("lr=0.2", repr(fresh))
        task = {"loss": "cross-entropy", "classes": ["a", "b"]}
        named = plain(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), task=task)
        features = pictures(8, shape=(4, 1, 1))
        self.assertIn(named.fit(features, list("abababab")).predict(features[:1])[0], ("a", "b"))

    def test_frames_are_their_own_targets_however_they_come(self):
        frames = pictures(10)
        for way in (lambda one: one.fit(frames) and one.predict(frames) and list(one.run(frames)),
                    lambda one: list(one.run(frames)) and one.partial_fit(frames),
                    lambda one: one.fit(frames) and [one.submit(frame) for frame in frames]):
            one = trainer(source={"drop": "never"})
            way(one)
            one.close()
            self.assertEqual(one.report()["frames"]["trained"], 10)
        with self.assertRaisesRegex(millrace.Error, "there are 10 frames and 9 targets"):
            one.fit(frames, frames[:9])

    def test_learn_one_is_pytorchs_step(self):
        torch.manual_seed(3)
        net = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
        one = plain(net, task={"loss": "cross-entropy"})
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for n, frame in enumerate(pictures(20, shape=(4, 1, 1))):
            x = dict(zip("abcd", frame.flatten().tolist()))
            made = net(frame[None])
            self.assertEqual(one.predict_one(x), made.argmax().item())
            self.assertEqual(list(one.predict_proba_one(x).values()), made[0].softmax(0).tolist())
            one.learn_one(x, n % 3)
            optimizer.zero_grad()
            nn.functional.cross_entropy(made, nn.functional.one_hot(torch.tensor([n % 3]), 3).float()).backward()
            optimizer.step()
        self.assert_same(one.state_dict(), net.state_dict())

    def test_the_example_runs_under_rivers_own_evaluation(self):
        if importlib.util.find_spec("river") is None:
            self.enterContext(mock.patch.dict(sys.modules, river=stand_in()))
        from river import evaluate
        scored, score = [], evaluate.progressive_val_score
        with mock.patch.object(evaluate, "progressive_val_score", lambda *given: scored.append(score(*given)) or scored[-1]):
            runpy.run_path(str(program.ROOT / "demos" / "river" / "learn.py"))
        self.assertGreater(scored[0].get(), 0.75)


def stand_in():
    """As much of River 0.26 as the example asks for: its protocol, and a data set of the same make."""
    name = types.SimpleNamespace

    def score(dataset, model, _):
        hits = []
        for x, y in dataset:
            hits.append(model.predict_one(x) == y)
            model.learn_one(x, y)
        return name(get=lambda: sum(hits) / len(hits))

    def phishing():
        for frame in pictures(1250, shape=(9,)):
            x = {f"feature_{i}": float(value) for i, value in enumerate((2 * frame).round() / 2)}
            yield x, x["feature_0"] + x["feature_3"] > x["feature_5"]

    return name(base=name(Classifier=type("Classifier", (), {})), datasets=name(Phishing=phishing),
                metrics=name(Accuracy=object), evaluate=name(progressive_val_score=score))
