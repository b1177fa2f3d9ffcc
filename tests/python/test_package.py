"""What a user of Python loses if the package is wrong: PyTorch's own numbers, order, words, weights both ways."""

import copy
import importlib.util
import itertools
import signal
import subprocess
import sys
import threading
import unittest

import torch
from torch import nn

import millrace
import networks
import program
import reference
from test_plan import module, write_profile

DAEMON = "threading.Thread(target=lambda: [%s], daemon=True).start()"
LR = 0.1
PLAIN = {"optimizer": {"kind": "sgd", "lr": LR}, "correction": "none", "guard": "none", "capture": "eager"}


def pictures(count, seed=0, shape=(3, 16, 24)):
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(shape, generator=generator) for _ in range(count)]


def network(seed=1):
    torch.manual_seed(seed)
    return networks.small()


def plain(net=None, **keys):
    """A trainer of one stage that learns by PyTorch's own steps."""
    return millrace.Trainer(net or network(), **{**PLAIN, "schedule": "sequential", "stages": 1, **keys})


def not_in_place(net):
    """The same modules with ReLUs that leave their input alone, as autograd wants it here."""
    return nn.Sequential(*[nn.ReLU() if isinstance(m, nn.ReLU) else m for m in net])


def expected(net, schedule, frames, cut, group=4):
    """Losses, and `net` trained, by tests/cli's rules in plain PyTorch; frames are their own targets."""
    samples = [(x[None], x[None]) for x in frames]
    return reference.RULES[schedule](reference.cut_network(net, cut, reference.sgd(0.0, LR)), samples, group=group)


class PackageTest(reference.ReferenceTest):
    def assert_errors(self, cases):
        """Each call raises one line, a ValueError as well, that holds its words."""
        for words, call in cases.items():
            with self.subTest(words), self.assertRaises(millrace.Error) as caught:
                call()
            self.assertIsInstance(caught.exception, ValueError)
            self.assertIn(words, str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))

    def assert_learns(self, trainer, frames, losses, net):
        """`trainer` learns the frames with these losses, and ends as `net`."""
        self.assertEqual([result.loss for result in trainer.run(frames)], losses)
        self.assert_same(trainer.state_dict(), net.state_dict())


class Package(PackageTest):
    @unittest.skipUnless(importlib.util.find_spec("mypy"), "needs mypy")
    def test_its_types_are_complete(self):
        program.output_of(sys.executable, "-m", "mypy", "--config-file", program.ROOT / "pyproject.toml", "-p", "millrace",
                          cwd=program.ROOT / "tools/bindings/python", env={"MYPY_CACHE_DIR": str(self.folder)})

    @unittest.skipUnless(importlib.util.find_spec("pyright") and importlib.util.find_spec("av"), "needs pyright and av")
    def test_pyright_finds_its_types_complete(self):
        program.output_of(sys.executable, "-m", "pyright", "--pythonpath", sys.executable, cwd=program.ROOT)

    @program.each(*reference.RULES)  # at every cut: test_reference.py
    def test_every_schedule_gives_pytorchs_own_bits(self, schedule):
        frames = pictures(22)
        net, own = network(), not_in_place(network())
        losses = expected(own, schedule, frames, [1, 4])
        trainer = millrace.Trainer(net, schedule=schedule, stages=3, cut=[1, 4], devices="cpu", microbatches=4, **PLAIN)
        self.assert_learns(trainer, frames, losses, own)
        self.assertEqual(trainer.report()["frames"], {"received": 22, "trained": len(losses), "dropped": 0,
                                                      "rejected": 22 - len(losses), "in_flight": 0})
        self.assert_same(net.state_dict(), network().state_dict())  # a copy was trained

    def test_targets_of_every_kind(self):
        """A picture, a class by number or none, a mask of classes; or the next frame, or the change to it."""
        frames, goals = pictures(10), pictures(10, seed=9)
        told = [0, 3, None, 1, 2, 4, None, 0, 1, 1]
        masks = [((torch.arange(24) + n) // 6 % 3).repeat(16, 1) for n in range(10)]
        for n, mask in enumerate(masks):
            mask[n] = 255  # no class
        torch.manual_seed(3)
        linear = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 24, 5))
        pixels = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 1))
        changes = reference.residual_cnn(3, 4, 3, 3, context=2)  # as it ends in no sigmoid
        mse, classes = nn.functional.mse_loss, nn.functional.cross_entropy
        seen = [torch.cat(pair) for pair in zip([frames[0], *frames], frames)]
        for name, net, given, samples, loss_of, keys in (
                ("pictures", network(), zip(frames, goals), zip(frames, goals), mse, {}),
                ("classes", linear, zip(frames, told), [(x, torch.tensor(k)) for x, k in zip(frames, told) if k is not None],
                 classes, {"task": {"loss": "cross-entropy"}}),
                ("masks", pixels, [(x, mask.numpy()) for x, mask in zip(frames, masks)], zip(frames, masks),
                 lambda y, mask: classes(y, mask, ignore_index=255), {"task": {"loss": "cross-entropy"}}),
                ("next frame", network(), frames, zip(frames, frames[1:]), mse, {"task": "next-frame"}),
                ("change", changes, frames, zip(seen, zip(frames[1:], frames)), lambda y, pair: mse(y + pair[1], pair[0]),
                 {"task": "next-frame"})):
            with self.subTest(name):
                own = not_in_place(copy.deepcopy(net))
                trainer = plain(net, **keys)
                results = list(trainer.run(given))
                batch = lambda y: tuple(part[None] for part in y) if isinstance(y, tuple) else y[None]
                losses, outputs = reference.train(own, [(x[None], batch(y)) for x, y in samples], loss_of, LR)
                learned = [result for result in results if result.loss == result.loss]  # without a target it is none
                self.assertEqual([result.loss for result in learned], losses)
                self.assertEqual([result.index for result in results if result not in learned], [2, 6] if name == "classes" else [])
                if name != "change":  # whose prediction is the sum
                    self.assertTrue(all(torch.equal(result.prediction, y[0]) for result, y in zip(learned, outputs)))
                self.assertTrue(all(result.latency > 0 and result.age == 0 for result in results))
                self.assert_same(trainer.state_dict(), own.state_dict())

    def test_it_goes_on_where_it_ended_and_weights_go_both_ways(self):
        frames = pictures(20)
        whole = [r.loss for r in plain(stages=2, cut=[2]).run(frames)]
        twice = plain(stages=2, cut=[2])
        self.assertEqual([r.loss for r in twice.run(frames[:8])] + [r.loss for r in twice.run(frames[8:])], whole)
        other = plain(network(seed=5))
        other.load_state_dict(twice.state_dict())
        next(iter(other.run(frames)))  # and breaks off
        other.load_state_dict(twice.state_dict())
        self.assert_same(other.state_dict(), twice.state_dict())

    def test_weights_that_do_not_fit_change_nothing(self):
        for frames in ([], pictures(3)):  # before the first run and after one
            trainer = plain()
            list(trainer.run(frames))
            before = trainer.state_dict()
            *others, last = before
            more = {name: value + 1 for name, value in before.items()}
            for other, says in ((more | {last: torch.zeros(1, 2)},
                                 f"size mismatch for {last}: copying a param with shape torch.Size([1, 2]) "),
                                (more | {"other": torch.zeros(1)}, "Unexpected key(s) in state_dict: \"other\"."),
                                ({name: more[name] for name in others}, f"Missing key(s) in state_dict: \"{last}\".")):
                self.assert_errors({says: lambda: trainer.load_state_dict(other)})
            self.assert_same(trainer.state_dict(), before)

    def test_who_breaks_off_stops_it(self):
        def endless():
            for seed in itertools.count():
                yield pictures(1, seed)[0]
        trainer = millrace.Trainer(network(), stages=2, cut=[2], **PLAIN)
        for result in trainer.run(endless()):
            if result.index == 20:
                break
        self.assert_balanced(trainer.report())
        self.assertGreaterEqual(trainer.report()["frames"]["trained"], 21)
        self.assertTrue(trainer.state_dict())

    def test_ctrl_c_is_heard_while_the_engine_works(self):
        def slow():
            for _ in range(50):  # more than are in flight: some are learned from by now
                yield pictures(1)[0]
            threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()
            while True:
                yield pictures(1)[0]
        # A shell's background job starts with the signal ignored.
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        trainer = plain()
        with self.assertRaises(KeyboardInterrupt):
            list(trainer.run(slow()))
        self.assertGreater(trainer.report()["frames"]["trained"], 0)

    def assert_exits(self, script, *last):
        """By itself, with 7 and these last words, where the script has a trainer and a frame."""
        begin = """
import itertools, os, signal, sys, threading, time, torch, millrace
net = torch.nn.Sequential(torch.nn.Conv2d(3, 3, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(3, 3, 3, padding=1))
trainer, frame = millrace.Trainer(net, stages=2, cut=[2], devices="cpu"), torch.zeros(3, 8, 8)
"""
        done = subprocess.run([sys.executable, "-c", begin + script], stderr=subprocess.PIPE, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stderr.splitlines()[-1:]), (7, list(last)), done.stderr)

    @program.each(("pass", "trainer.submit(frame)"), ("time.sleep(1e6)", "trainer.submit(frame)"),
                  ("raise KeyError(3)", "trainer.submit(frame)", "KeyError: 3"),
                  ("raise KeyError(3)", "trainer.submit(frame); seen.wait(60); del trainer", "KeyError: 3"),
                  ("pass", DAEMON % "trainer.submit(frame) for _ in itertools.count()"),
                  ("pass", DAEMON % "see(result) for result in trainer.run(itertools.repeat(frame))"))
    def test_neither_an_open_trainer_nor_a_daemon_thread_holds_up_the_exit(self, see, give, *said):
        """What `see` raised, and no call did, is said."""
        self.assert_exits(f"""
seen = threading.Event()
def see(result):
    seen.set()
    {see}
trainer.on_result(see)
{give}
seen.wait(60)
sys.exit(7)
""", *said)

    @program.each(("trainer.submit(frame)", "lambda: trainer.submit(frame), trainer.poll, trainer.close, trainer.report, trainer.state_dict"),
                  ("results = trainer.run([frame] * 50); next(results)", "trainer.report,"))
    def test_a_forked_process_neither_learns_nor_waits(self, start, refused):
        self.assert_exits(f"""
{start}
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
signal.alarm(60)
for use in ({refused}):
    try:
        use()
    except millrace.Error as error:
        assert "when the process was forked" in str(error), error
    else:
        assert False, "not refused"
sys.exit(7)
""")

    def test_an_error_of_the_users_own_comes_through(self):
        def breaks():
            yield from pictures(3)
            raise KeyError("mine")
        with self.assertRaises(KeyError):
            list(plain().run(breaks()))

    def test_a_config_as_dict_and_as_file(self):
        config = {"model": {"preset": "partime-cnn", "layers": 2, "features": 4, "kernel": 3, "seed": 3},
                  "pipeline": {"stages": 1}, "task": {"kind": "autoencode"},
                  "optimizer": {"kind": "sgd", "lr": LR}}
        frames = pictures(8)
        trainer = millrace.Trainer(config, correction="none", guard="none", capture="eager")
        torch.manual_seed(3)
        own = reference.partime_cnn(2, 4, 3, 3)
        losses = expected(own, "sequential", frames, [])
        self.assert_learns(trainer, frames, losses, own)
        path = program.write_toml(self.folder / "my.toml", {**config, "task": {"kind": "next-frame"}})
        again = millrace.Trainer(path, task="autoencode", correction="none", guard="none", capture="eager")
        self.assert_learns(again, frames, losses, own)
        paired = millrace.Trainer(path, correction="none", guard="none", capture="eager")
        self.assertEqual(len(list(paired.run(frames))), 7)  # the last frame has no later one

    def test_without_frames_it_reads_the_configs_own_source(self):
        bytes_ = program.random_frames(1, 8)
        source = {"uri": program.write_frames(self.folder, bytes_), "width": 24, "height": 16}
        results = list(plain(source=source).run())
        self.assertEqual([round(result.time, 6) for result in results], [n / 25 for n in range(8)])
        given = plain().run(x[0] for x in reference.tensors(bytes_))
        self.assertEqual([result.loss for result in results], [result.loss for result in given])
        looped = plain(task="next-frame", source={**source, "loop": True})
        learned = [result.frame for result in itertools.islice(looped.run(), 16)]
        self.assertEqual(learned, [n for n in range(18) if n % 8 != 7])  # nothing follows the last of a pass
        with self.assertRaisesRegex(millrace.Error, "none.avi"):
            list(plain(source={"uri": f"{self.folder}/none.avi"}).run())

    def test_bad_input_is_one_line_with_the_programs_words(self):
        net, frames = network(), pictures(3)
        self.assert_errors({
            "unknown key schedul; the nearest is schedule": lambda: millrace.Trainer(net, schedul="gpipe"),
            "optimizer.lr: -1: must be a number from 0": lambda: millrace.Trainer(net, optimizer={"lr": -1}),
            "the network has 6 modules, so 1 to 6 stages, not 7": lambda: millrace.Trainer(net, stages=7),
            "pipeline.cut: cut positions must increase and lie between 1 and 5": lambda: millrace.Trainer(net, stages=2, cut=[6]),
            "fps: is a key of several tables": lambda: millrace.Trainer(net, fps=1),
            "pipeline.schedule: 'gpip'": lambda: millrace.Trainer(net, schedule="gpip"),
            "frame 1: has the shape [3, 5, 5], those before [3, 16, 24]":
                lambda: list(millrace.Trainer(net, stages=1).run([frames[0], torch.rand(3, 5, 5)])),
            "output.report: a Trainer writes nothing": lambda: millrace.Trainer(net, output={"report": "r.json"}),
            "checkpoint.dir: a Trainer writes nothing": lambda: millrace.Trainer({"checkpoint": {"dir": "kept"}}),
            "mqtt.broker: a Trainer writes nothing": lambda: millrace.watch("clip.mp4", mqtt={"broker": "mqtt://home"}),
            "is not copied or pickled": lambda: copy.copy(millrace.Trainer(net)),
            "task.classes: names are needed":
                lambda: next(millrace.watch("synth:shapes", task={"kind": "label"})),
            "'\\udce9': a config holds UTF-8": lambda: millrace.Trainer(net, model={"weights": "\udce9"}),
            "no\udce9.mp4": lambda: next(millrace.watch("no\udce9.mp4")),
            "pipeline.schedule: learns from 4 frames at a time":
                lambda: plain(net, schedule="gpipe", stages=2, cut=[2]).learn_one(frames[0]),
            "1B0": millrace.Schedule.from_actions([["0F0", "0B0"], ["1B0", "1F0"]]).verify,
            "gpip": lambda: millrace.Schedule("gpip"),
            "frame 0: is a str": lambda: list(millrace.Trainer(net).run(["a.png"])),
            "target 0: has the shape [2, 2]":
                lambda: list(millrace.Trainer(net, stages=1).run([(frames[0], torch.rand(2, 2))])),
        })

    def test_one_written_in_python_is_verified_simulated_and_run(self):
        mine = millrace.Schedule.from_actions([["0F0", "0F1", "", "0B0", "0B1"], ["", "1F0", "1B0", "1F1", "1B1"]])
        mine.verify()
        self.assertEqual((mine.stages, mine.workers), (2, 2))
        done = mine.simulate(8, forward=1, backward=2)
        self.assertEqual(done.samples, 8)
        self.assertGreater(done.bubble, 0)
        frames = pictures(8)
        own = not_in_place(network())
        losses = expected(own, "gpipe", frames, [2], group=2)
        self.assert_learns(millrace.Trainer(network(), schedule=mine, cut=[2], **PLAIN), frames, losses, own)

    def test_plans_are_the_programs(self):
        path = write_profile(self.folder, *(
            module(name, ms, weight=1e6) for name, ms in (("a", 2), ("b", 1), ("c", 1), ("d", 1))))
        best, *others = millrace.plan(path, devices=2, schedules=["partime", "gpipe"])
        self.assertEqual((best.schedule, best.stages, best.cut, best.gradient_age), ("partime", 2, [2], [2, 0]))
        self.assertEqual([plan.schedule for plan in others], ["gpipe"])
        self.assertGreater(best.frames_a_second, others[0].frames_a_second)
        table = program.call("plan", path, "--devices", "2", "--schedules", "partime").out
        self.assertIn(f"{best.frames_a_second:.1f} frames a second", table)
        with self.assertRaisesRegex(millrace.Error, "memory|bytes"):
            millrace.plan(path, devices=2, memory_bytes=1)

    def test_the_staircase_is_the_programs(self):
        text = millrace.Schedule("gpipe", stages=2, microbatches=2).staircase(2)
        self.assertEqual(text.splitlines()[0].split()[2:6], ["0F0", "0F1", ".", "."])
        self.assertEqual(millrace.Schedule("partime", stages=3).gradient_age(), [4, 2, 0])
        self.assertIn("zb-h1", millrace.schedules())
