"""What a user loses if a frame, a target or a module as others write them is misread, or refused in PyTorch's words."""

import gc
import os
import tempfile
import warnings
from unittest import mock

import numpy
import torch
from PIL import Image
from torch import nn

import millrace
from millrace import _frames
from test_package import PackageTest, network, pictures, plain

BYTES = numpy.random.default_rng(1).integers(0, 256, (16, 24, 3), numpy.uint8)  # as cv2, PIL and imageio give it
FLOATS = numpy.ascontiguousarray(BYTES.transpose(2, 0, 1)) / numpy.float32(255)
GREY = BYTES[:, :, 0]


def losses(frames, net=None, **keys):
    return [result.loss for result in plain(net, **keys).run(frames)]


def one_channel():
    torch.manual_seed(2)
    return nn.Sequential(nn.Conv2d(1, 1, 3, padding=1))


def classifier(outputs=3):
    torch.manual_seed(2)
    return nn.Sequential(nn.Flatten(), nn.Linear(FLOATS.size, outputs))


def pixel_classifier():
    torch.manual_seed(2)
    return nn.Sequential(nn.Conv2d(3, 3, 3, padding=1))


class Inputs(PackageTest):
    def assert_alike(self, kinds, *args, **keys):
        right, *others = kinds.values()
        for name, value in zip(list(kinds)[1:], others):
            with self.subTest(name):
                self.assertEqual(losses([value] * 2, *args, **keys), losses([right] * 2, *args, **keys))

    def test_a_frame_is_the_same_in_every_form(self):
        palette = Image.fromarray(BYTES).quantize(256)
        self.assert_alike({
            "float32": FLOATS, "bytes": BYTES, "bytes of torchvision": torch.from_numpy(BYTES).permute(2, 0, 1),
            "PIL": Image.fromarray(BYTES), "read backwards": BYTES[::-1].copy()[::-1], "floats backwards": FLOATS[:, ::-1].copy()[:, ::-1],
            "other byte order": FLOATS.astype(">f4"), "16 bits": BYTES.astype(">u2") * 257, "longdouble": FLOATS.astype("longdouble"),
            "PIL with alpha": Image.fromarray(numpy.dstack([BYTES, GREY])), "doubles": FLOATS.astype("float64"),
            "a batch of one": FLOATS[None]})
        self.assertEqual(_frames.frame(FLOATS, 0, []).data_ptr(), FLOATS.ctypes.data, "it is copied")
        self.assert_alike({"PIL, converted": palette.convert("RGB"), "with a palette": palette})
        self.assert_alike({"bfloat16 as float32": torch.from_numpy(FLOATS).bfloat16().float(), "bfloat16": torch.from_numpy(FLOATS).bfloat16()})

    def test_so_is_a_grey_one(self):
        self.assert_alike({"float32": FLOATS[:1], "bytes": GREY, "floats": FLOATS[0], "bytes [H,W,1]": BYTES[:, :, :1],
                           "PIL": Image.fromarray(GREY), "16 bits": Image.fromarray(GREY.astype("uint16") * 257)}, one_channel())
        self.assert_alike({"float32": (FLOATS[:1] > 0.5).astype("float32"), "bool": FLOATS[0] > 0.5,
                           "PIL": Image.fromarray(FLOATS[0] > 0.5)}, one_channel())

    def test_so_is_a_target(self):
        self.assert_alike({"float32": (FLOATS, FLOATS[::-1].copy()), "bytes": (BYTES, BYTES[:, :, ::-1])})
        self.assert_alike({"float32": (FLOATS[:1], FLOATS[:1]), "bytes": (GREY, GREY)}, one_channel())

    def test_so_is_a_class(self):
        forms = {"number": 1, "array": numpy.array([1]), "tensor": torch.tensor([[1]]), "truth": True, "numpy truth": numpy.True_,
                 "float": 1.0, "uint8": numpy.uint8(1), "name": "cat", "one-hot": numpy.array([0, 1, 0]), "bytes": numpy.array([0, 1, 0], "uint8"),
                 "backwards": numpy.array([0, 1, 0.])[::-1]}
        self.assert_alike({name: (FLOATS, form) for name, form in forms.items()}, classifier(),
                          task={"loss": "cross-entropy", "classes": ["bird", "cat", "dog"]})

    def test_so_is_a_mask(self):
        mask = (GREY % 4).astype("int64")  # 3: no class
        self.assert_alike({name: (FLOATS, form) for name, form in {
            "int64": mask, "bytes": GREY % 4, "16 bits": (GREY % 4).astype("uint16"), "other byte order": mask.astype(">i4"),
            "PIL": Image.fromarray(GREY % 4), "[1,H,W]": mask[None]}.items()}, pixel_classifier(), task={"loss": "cross-entropy"})

    def test_a_number_is_the_target_of_one_output(self):
        for y in (0, 0.5, numpy.float64(0.25)):
            one = plain(classifier(1))
            before = one.predict_one(FLOATS)
            one.learn_one(FLOATS, y)
            one.close()
            self.assertAlmostEqual(one.report()["loss"]["first"], (before - float(y)) ** 2, places=5)

    def test_what_can_not_be_read_is_one_line(self):
        names = {"loss": "cross-entropy", "classes": ["bird", "cat", "dog"]}
        self.assert_errors({
            "frame 0: is int32; a picture is float32 in 0..1 or uint8": lambda: losses([FLOATS.astype("int32")]),
            "frame 0: is complex64; it must be float32, or uint8 (a picture)": lambda: losses([FLOATS.astype("complex64")]),
            "frame 0: is object;": lambda: losses([FLOATS.astype("object")]),
            "frames of floats are [C,H,W]: frame.transpose(2, 0, 1)": lambda: losses([FLOATS.transpose(1, 2, 0)]),
            "target 0: \"cta\" is not in task.classes; the nearest is \"cat\"": lambda: losses([(FLOATS, "cta")], classifier(), task=names),
            "target 0: is the name \"cat\"; list the names: classes=[\"cat\", ...]":
                lambda: losses([(FLOATS, "cat")], classifier(), task={"loss": "cross-entropy"}),
            "target 0: class 1.5 is out of range": lambda: losses([(FLOATS, 1.5)], classifier(), task=names),
            "Trainer: a torch.nn.Module, the path of a config or a dict is due, not 3": lambda: millrace.Trainer(3),
            "a frame is a list of 0": lambda: losses([[]]),
            "fit: there are 1 targets and more frames": lambda: millrace.Trainer(network()).fit(iter([FLOATS] * 2), iter([FLOATS])),
            "optimizer.lr: a config has no values of type object": lambda: millrace.Trainer(network(), lr=object()),
            "frames: an iterable, such as a list, is due, not 3": lambda: losses(3),
            "targets: an iterable, such as a list, is due, not 3": lambda: plain().fit([FLOATS], 3),
            "frames are due, or a source": lambda: losses(None),
            "target 0: holds numbers that are not finite": lambda: losses([(FLOATS, numpy.full_like(FLOATS, numpy.inf))]),
            "frame 0: time is 'now'; it must be in seconds": lambda: plain().submit(FLOATS, time="now"),
            "frame 0: time is nan": lambda: plain().submit(FLOATS, time=numpy.nan),
            "\"0.bias\" holds numbers that are not finite":
                lambda: plain().load_state_dict({**network().state_dict(), "0.bias": torch.full((6,), torch.inf)}),
        })

    def test_a_callers_modes_do_not_change_what_is_learned(self):
        right = losses([FLOATS] * 3)
        for mode in (torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode(), torch.no_grad(), torch.device("meta")):
            net = network()
            with self.subTest(mode), mode:
                self.assertEqual(losses([FLOATS] * 3, net), right)

    def test_another_default_type_is_one_line(self):
        trainer, net = plain(), network()
        list(trainer.run([FLOATS]))
        torch.set_default_dtype(torch.float64)
        self.addCleanup(torch.set_default_dtype, torch.float32)
        for call in (lambda: list(trainer.run([FLOATS])), lambda: millrace.Trainer(net), lambda: millrace.export(net)):
            with self.assertRaisesRegex(millrace.Error, "^PyTorch's default type is float64; .*set_default_dtype"):
                call()

    def test_modules_that_can_not_be_learned_are_one_line(self):
        lazy = nn.Sequential(nn.LazyConv2d(3, 3))
        for net, words in ((lazy, "0.weight has no shape yet: first call the module on a sample"),
                           (network().bfloat16(), "0.weight is bfloat16; parameters must be float32: call module.float()"),
                           (network().to("meta"), "0.weight has no values: it is on the meta device"),
                           (torch.compile(network()), "OptimizedModule wraps the network: pass the network itself, its attribute ._orig_mod"),
                           (nn.DataParallel(network()), "DataParallel wraps the network"),
                           (torch.jit.script(nn.ReLU()), "RecursiveScriptModule is TorchScript")):
            for use in (millrace.Trainer, millrace.export):
                self.assert_errors({words: lambda: use(net)})

    def learner(self, **keys):
        torch.manual_seed(3)
        return plain(nn.Sequential(nn.Flatten(), nn.Linear(3, 2)), task={"loss": "cross-entropy", **keys})

    def test_features_are_taken_by_name(self):
        x = {"a": 0.1, "b": 0.9, "c": 0.4}
        answers = []
        for orders in (["abc"] * 4, ["abc", "cab", "bca", "cba"], ["cba", "abc", "abc", "abc"]):
            one = self.learner()
            for n, order in enumerate(orders):
                one.learn_one({name: x[name] for name in order}, n % 2)
            answers.append(one.predict_proba_one(x))
        self.assertEqual(answers[1:], answers[:1] * 2)
        with self.assertRaisesRegex(millrace.Error, "^frame 5: has an unknown feature \"d\"; the nearest is "):
            one.predict_one({"a": 0.1, "b": 0.9, "d": 0.4})
        one.close()
        for broken, words in (({"a": 0.1, "b": 0.9}, "frame 0: lacks the feature \"c\", which those before had"),
                              ({**x, "b": "red"}, "frame 0: feature \"b\" is 'red'; it must be a number in 0..1"),
                              ({**x, "b": None}, "frame 0: feature \"b\" is None; it must be a number in 0..1")):
            # In a new series, whose weights go on.
            self.assert_errors({words: lambda: one.predict_one(broken)})

    def test_features_may_be_their_own_target(self):
        torch.manual_seed(3)
        one = plain(nn.Sequential(nn.Flatten(), nn.Linear(2, 2)))
        made = one.predict_one({"b": 0.2, "a": 0.1})
        one.learn_one({"b": 0.2, "a": 0.1})
        one.close()
        self.assertAlmostEqual(one.report()["loss"]["first"], ((made.flatten() - torch.tensor([0.1, 0.2])) ** 2).mean().item(), places=6)

    def test_who_learns_names_is_answered_by_name(self):
        one = self.learner(classes=["no", "yes"])
        x = {"a": 0.1, "b": 0.9, "c": 0.4}
        for _ in range(30):
            one.learn_one(x, "yes")
        self.assertEqual(one.predict_one(x), "yes")
        self.assertEqual(list(one.predict_proba_one(x)), ["no", "yes"])
        one.learn_one(x, 1)
        self.assertEqual(one.predict_one(x), 1)

    def test_a_trainer_leaves_no_folder_and_no_warning(self):
        with mock.patch.object(tempfile, "tempdir", self.folder), \
                warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", ResourceWarning)
            trainer = plain()
            next(trainer.run(pictures(1)))
            self.assertEqual(len(os.listdir(self.folder)), 1)
            del trainer
            gc.collect()
            self.assertEqual(os.listdir(self.folder), [])
            self.assertEqual([str(one.message) for one in warned if one.category is ResourceWarning], [])

    def test_no_tensor_is_printed_whole(self):
        result = next(plain().run(pictures(1)))
        self.assertLess(len(repr(result)), 120)
        self.assertLess(len(repr(millrace.export(network()))), 2000)
