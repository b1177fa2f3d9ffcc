"""What a user loses if a PyTorch module's parts are not the module: its numbers, its names, a clear word on what can't be."""

import contextlib
import copy
import io
import json
import os
import runpy
import sys
import threading

import numpy
import torch
from safetensors.torch import save_file
from torch import nn

import millrace
from millrace import _cut
import networks
import program
import reference
from test_package import LR, PackageTest, not_in_place, pictures, plain

HERE = os.path.dirname(os.path.abspath(__file__))
export_main = runpy.run_module("millrace.export")["main"]


def made(kind, seed=4):
    torch.manual_seed(seed)
    return kind()


def class_samples(count, shape):
    return list(zip(pictures(count, shape=shape), [n % 5 for n in range(count)]))


def loop(net, samples, loss_of):
    """One frame after another, batch norms as eval() has them."""
    net.eval()
    return reference.train(net, [(x[None], y) for x, y in samples], loss_of, LR)[0]


def of_class(out, number):
    return nn.functional.cross_entropy(out, nn.functional.one_hot(torch.tensor([number]), 5).float())


def of_picture(out, x):
    return nn.functional.mse_loss(out, x[None])


class Branches(nn.Module):
    """Changes the list that it is given."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))

    def forward(self, both):
        for i, conv in enumerate(self.convs):
            both[i] = conv(both[i])
        return both[0] + both[1]


class Optional(nn.Module):
    """Its forward takes more than a sample, and has lists of branches."""

    def __init__(self):
        super().__init__()
        self.first, self.branches, self.last = nn.Conv2d(3, 4, 1), Branches(), nn.Conv2d(4, 3, 1)

    def forward(self, x, mask=None, scale: float = 0.5, twice: bool = False, sides=(8, 8)):
        x = nn.functional.interpolate(self.first(x), sides)
        x = self.branches([x, x * scale])
        if mask is not None:
            x = x * mask
        return self.last(x + x if twice else x)


class Of(nn.Module):
    """Its forward is `work` of the input and these modules."""

    def __init__(self, work, *modules):
        super().__init__()
        self.work, self.modules_ = work, nn.ModuleList(modules)

    def forward(self, x):
        return self.work(x, *self.modules_)


class Keeps(nn.Module):
    """Keeps what it computes for users to look at."""

    def __init__(self):
        super().__init__()
        self.conv, self.sparse = nn.Conv2d(3, 3, 1), True

    def forward(self, x):
        self.gate = torch.sigmoid(self.conv(x))
        return x * self.gate if self.sparse else x


class Adapts(nn.Module):
    """Takes its scale from the first sample."""

    scale = None

    def forward(self, x):
        self.scale = x.detach().std() if self.scale is None else self.scale
        return x / self.scale


class Versioned(nn.Conv2d):
    def _load_from_state_dict(self, state, prefix, *rest):
        doubled = {name: value * 2 if isinstance(value, torch.Tensor) else value for name, value in state.items()}
        super()._load_from_state_dict(doubled, prefix, *rest)

    def get_extra_state(self):
        return {"version": 1}

    def set_extra_state(self, state):
        pass


class Quiet(nn.Sequential):
    """Its train() returns nothing, as mmdetection's; and it has no subclasses."""

    def __init__(self):
        super().__init__(nn.Conv2d(3, 3, 1), Keeps())

    def __init_subclass__(cls):
        raise TypeError("a registry knows it")

    def train(self, mode=True):
        super().train(mode)


class Buffers(nn.Module):
    """Buffers of every kind, one of them used in several parts."""

    def __init__(self):
        super().__init__()
        self.first, self.last, self.norm = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 3, 1), nn.BatchNorm2d(4, affine=False)
        self.norm.running_mean.uniform_()
        self.register_buffer("order", torch.randperm(4))
        self.register_buffer("gain", torch.rand(4, 1, 1).half())
        self.register_buffer("scale", torch.rand(1, dtype=torch.float64))

    def forward(self, x):
        x = self.norm(torch.tanh(self.norm(self.first(x))))
        return self.last(x[:, self.order] * self.gain.float() * self.scale.float())


class Constants(nn.Module):
    """What it computes with has no name among its weights, of which a head is used in training alone."""

    def __init__(self):
        super().__init__()
        self.first, self.last, self.head = nn.Conv2d(4, 3, 1), nn.Conv2d(3, 3, 1), nn.Linear(3, 2)
        self.register_buffer("grid", torch.linspace(0, 1, 24).expand(1, 1, 16, 24).clone(), persistent=False)
        self.scale = torch.tensor([0.2, 0.3, 0.4]).view(1, 3, 1, 1)

    def forward(self, x):
        return self.last(torch.relu(self.first(torch.cat([x / self.scale, self.grid], 1)))) * self.scale


class Checkpointed(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *x):
        return torch.utils.checkpoint.checkpoint(self.inner, *x, use_reentrant=False) + 1


def hooked(register):
    net = nn.Conv2d(3, 3, 1)
    register(net)
    return net


class Changes(nn.Module):
    """Statements that change a tensor in place; `gain` starts at 0, so that its branch shows in no output. Constants."""

    def __init__(self):
        super().__init__()
        self.first, self.branch, self.last = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)
        self.gain, self.mean = nn.Parameter(torch.zeros(1)), torch.full((1, 3, 1, 1), 0.4)

    def forward(self, x):
        x = x - self.mean
        y = self.first(x / torch.tensor([0.2, 0.3, 0.4]).view(1, 3, 1, 1))
        y.clamp_(max=0.5)
        y.add_(self.gain * self.branch(x))
        nn.functional.relu_(y)
        return self.last(y)


def changed_by_modules():
    """Modules that change what is used later, by name and within a module."""
    def block(x, change, conv):
        return x + conv(change(x))

    def forward(x, first, inner, change, conv, last):
        x = inner(first(x))
        change(x)
        return last(x + conv(x))
    convs = [nn.Conv2d(before, after, 3, padding=1) for before, after in ((3, 4), (4, 4), (4, 4), (4, 3))]
    return Of(forward, convs[0], Of(block, nn.SiLU(inplace=True), convs[1]), nn.Hardtanh(-0.2, 0.2, inplace=True), *convs[2:])


def sized():
    """Makes tensors of its input's size."""
    def forward(x, first, last):
        y = first(x) + torch.full((x.shape[0], 4, 1, 1), 0.1, device=x.device)
        ramp = torch.linspace(0, 1, y.shape[3]).expand(x.size(0), 1, y.size(2), -1)
        return last(torch.cat([y, ramp], 1))
    return Of(forward, nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(5, 3, 3, padding=1))


def normalize(x):
    x[:, 0] = (x[:, 0] - 0.485) / 0.229
    return x


def shifted():
    """Writes to a part of its input."""
    def shift(x):
        x[:, :2, :, 1:] = x[:, :2, :, :-1].clone()
        return x
    return nn.Sequential(nn.Conv2d(3, 4, 1), Of(shift), nn.Conv2d(4, 3, 1))


def filled(x, conv):
    zeros, ones = torch.zeros(1, 3, 16, 24), torch.empty_like(x)
    zeros[:, :, ::2] = conv(x)[:, :, ::2]
    return zeros + ones.copy_(conv(x))


def added(x, conv):
    zeros = torch.zeros(1, 3, 16, 24)
    zeros += conv(x)
    return zeros


def half(x, conv):
    with torch.autocast("cpu", torch.bfloat16):
        x = conv(x)
    return x.float()


def flipped(x, conv):
    x = conv(torch.cat([x, x.flip(3)]))
    return x.sum(0, keepdim=True) / x.shape[0]


def windows(x, first, last):
    b, c, h, w = first(x).shape
    x = x.view(b, 3, h // 4, 4, w // 4, 4).permute(0, 2, 4, 3, 5, 1).reshape(-1, 16, 3)
    n, length, _ = x.shape
    x = (x @ x.transpose(1, 2)).softmax(-1).view(n, length, length) @ x
    return last(x.view(b, h // 4, w // 4, 4, 4, 3).permute(0, 5, 1, 3, 2, 4).reshape(b, c, h, w))


class Table(nn.Module):
    """Its gradient would be sparse."""

    def __init__(self):
        super().__init__()
        self.conv, self.table = nn.Conv2d(3, 3, 1), nn.Embedding(24, 3, sparse=True)

    def forward(self, x):
        return self.conv(x) + self.table(torch.arange(24)).t()[None, :, None]


def renormed(x, conv):
    conv.weight.data = torch.renorm(conv.weight.data, 2, 0, 9.0)
    return conv(x)


def clamped(x, first, last):
    last.bias.data.clamp_(-9, 9)
    return last(first(x))


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.sign()

    @staticmethod
    def backward(context, gradient):
        return gradient


class Export(PackageTest):
    def parts(self, net, *shape):
        return millrace.export(net, torch.rand(1, *shape)).parts

    def test_children_blocks_skips_and_tokens_are_cut(self):
        nested = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Sequential(nn.ReLU(), nn.Conv2d(4, 3, 1)), nn.Sigmoid())
        parts = self.parts(nested, 3, 8, 8)
        self.assertEqual([part.name for part in parts], ["0", "1.0", "1.1", "2"])
        self.assertEqual([v.name for part in parts for v in part.values], list(nested.state_dict()))
        self.assertEqual([part.name for part in millrace.export(made(networks.ResNet)).parts],
                         ["conv1", "bn1", "relu", "maxpool", "layer1.0", "layer1.1", "layer2.0", "layer2.1", "avgpool", "flatten", "fc"])
        self.assertEqual([len(part.sources) for part in millrace.export(made(networks.UNet)).parts if part.name == "cat"], [2, 2])
        self.assertLessEqual({"blocks.0", "blocks.1", "blocks.2"}, {part.name for part in self.parts(made(networks.ViT), 3, 16, 16)})

    def test_a_module_with_most_of_the_weights_is_cut(self):
        for asks, names in [(False, ["0.modules_.0", "0.modules_.1", "1"]), (True, ["0", "1"])]:
            def forward(x, first, last):
                x = first(x)
                return last(x) if not asks or x.sum() > 0 else x
            body = Of(forward, nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3))
            found = [part.name for part in _cut.cut(nn.Sequential(body, nn.Conv2d(16, 3, 1)), torch.rand(1, 3, 8, 8))]
            self.assertEqual(found, names)

    def assert_learns_as(self, own, losses, net, samples, cut, **keys):
        """`net` ends as `own`, which learned the samples with these losses."""
        with self.subTest(cut=cut, **keys):
            self.assert_learns(plain(net, stages=len(cut) + 1, cut=cut, **keys), samples, losses, own)

    @program.each((networks.ResNet, (3, 32, 32), [[], [4], [5, 8]], True), (networks.UNet, (3, 16, 24), [[], [5], [3, 10]], False),
                  (networks.ViT, (3, 16, 16), [[], [5], [4, 6]], True), (Optional, (3, 8, 8), [[], [1]], False),
                  (Changes, (3, 8, 8), [[], [2]], False), (sized, (3, 8, 8), [[], [1]], False),
                  (changed_by_modules, (3, 8, 8), [[], [2], [1, 3]], False), (shifted, (3, 8, 8), [[], [1]], False))
    def test_every_network_learns_as_in_pytorch(self, kind, shape, cuts, classes):
        """To the bit, and nearly where its steps are recorded."""
        own, frames = made(kind), class_samples(10, shape) if classes else pictures(10, shape=shape)
        losses = loop(own, frames, of_class) if classes else loop(own, zip(frames, frames), of_picture)
        task = {"loss": "cross-entropy" if classes else "mse"}
        for cut in cuts:
            self.assert_learns_as(own, losses, made(kind), frames, cut, task=task)
        recorded = plain(made(kind), stages=len(cut) + 1, cut=cut, capture="graph", task=task).run(frames)
        numpy.testing.assert_allclose([result.loss for result in recorded], losses, rtol=1e-3)

    def test_recorded_operators_learn_what_eager_ones_do(self):
        functional = nn.functional

        def shuffled(x):
            b, c, h, w = x.shape
            x = x.view(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, -1, h, w)
            return functional.pad(x, (0, 0, 0, (5 - h % 5) % 5))[:, :, :h * 2 - h // 2 - h]

        cases = {"bounds": Of(lambda x: x.clamp(min=torch.tensor(-0.1)) * functional.cosine_similarity(x, x * x + 1)),
                 "sizes": Of(lambda x: functional.interpolate(shuffled(x), (12, 16))),
                 "an operand of each row": Of(lambda x: x * x.mean(3, keepdim=True)),
                 "instance norm": nn.InstanceNorm2d(4),
                 "positions": Of(lambda x: x + torch.arange(x.shape[3]) / x.shape[3] + torch.linspace(0, 1, x.shape[2])[:, None]),
                 "constants for the backward": Of(lambda x: torch.minimum(x * torch.linspace(0.5, 1.5, x.shape[3]),
                                                                          torch.ones_like(x)) * torch.full_like(x, 0.3)),
                 "norms of rows": nn.Sequential(nn.Flatten(2), nn.BatchNorm1d(4), nn.GroupNorm(2, 4), nn.InstanceNorm1d(4, affine=True),
                                                nn.Unflatten(2, (12, 16))),
                 "a norm that begins": nn.GroupNorm(1, 4),
                 "a view": Of(lambda x: x.view(-1, 4 * 12 * 16).view(1, 4, 12, 16)),
                 "no gradient": Of(lambda x, conv: conv(x).detach() + x, nn.Conv2d(4, 4, 1)),
                 "a sum of nothing": Of(lambda x: x + x[:, :0].sum()),
                 "pixels without a batch": Of(lambda x: functional.pixel_unshuffle(functional.pixel_shuffle(x[0], 2), 2)[None]),
                 "several queries a key": Of(lambda x: functional.scaled_dot_product_attention(
                     x, x[:, :2], x[:, :2], enable_gqa=True)),
                 "every other bias": Of(lambda x, conv: functional.conv2d(x, conv.weight[:4], conv.bias[::2]), nn.Conv2d(4, 8, 1)),
                 "windows beyond the padding": nn.Sequential(nn.AdaptiveAvgPool2d((3, 2)), nn.AvgPool2d(5, 2, 1, ceil_mode=True),
                                                             nn.Upsample((12, 16)))}
        frames = pictures(6, shape=(3, 12, 16))
        for name, middle in cases.items():
            def make():
                torch.manual_seed(0)
                net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), copy.deepcopy(middle),
                                    nn.Conv2d(4, 3, 3, padding=1))
                net[0].requires_grad_("begins" not in name)
                return net

            for cut in ([], [2]):
                with self.subTest(name, cut=cut):
                    graph, eager = ([result.loss for result in plain(
                        make(), schedule="partime", stages=1 + len(cut), cut=cut, capture=capture).run(frames)]
                        for capture in ("graph", "eager"))
                    numpy.testing.assert_allclose(graph, eager, rtol=1e-4)
        part = millrace.export(nn.Sequential(Of(shuffled)), torch.rand(1, 4, 12, 16)).parts[0].traced
        self.assertEqual(list(part(torch.rand(1, 4, 20, 8)).shape), [1, 4, 10, 8], "other sizes as well")

    def test_zb_h1_leaves_out_parts_whose_output_gets_no_gradient(self):
        def around(x, a, b, c):  # through whose middle gradients go straight
            y = a(x)
            return c(y + (b(y) - y).detach())

        for capture in ("eager", "graph"):
            with self.subTest(capture):
                states = []
                for schedule in ("gpipe", "zb-h1"):
                    torch.manual_seed(0)
                    net = Of(around, nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 3, 1))
                    trainer = plain(net, stages=2, schedule=schedule, capture=capture, pipeline={"microbatches": 4})
                    list(trainer.run(pictures(8)))
                    states.append(trainer.state_dict())
                self.assert_same(*states, atol=1e-6)

    def test_what_can_not_be_recorded_runs_eagerly_and_is_cut_all_the_same(self):
        def whitened(x):
            rows = x.flatten(2)[0]
            return (torch.linalg.inv(rows @ rows.t() + 0.1 * torch.eye(len(rows))) @ rows).reshape(x.shape)

        for middle, asks in ((lambda x: x * x.prod(1, keepdim=True), "_local_scalar_dense"),
                             (lambda x: x * x[x <= 0].mean(), "aten::index"), (whitened, "")):
            with self.subTest(asks):
                trainer = millrace.Trainer(nn.Sequential(nn.Conv2d(3, 2, 3, padding=1), Of(middle), nn.Conv2d(2, 3, 3, padding=1)),
                                           stages=2)
                self.assertEqual(len(list(trainer.run(pictures(4)))), 4)
                report = trainer.report()
                self.assertEqual((report["capture"], len(report["cut"])), ("eager", 1))
                self.assertIn(asks, report["capture_error"])

    def test_what_is_frozen_stays_and_the_rest_learns_as_in_pytorch(self):
        samples = class_samples(8, (3, 32, 32))
        own = made(networks.ResNet)
        for name, parameter in own.named_parameters():
            parameter.requires_grad_(not name.startswith(("conv1", "bn1", "layer1")))
        fixed = copy.deepcopy(own)  # what requires no gradient need not be named
        losses = loop(own, samples, of_class)
        named = {"freeze": ["conv1.*", "bn1.*", "layer1.*"]}
        for net, cut, keys in ((fixed, [], {}), *((made(networks.ResNet), cut, named) for cut in ([], [3], [6], [2, 7]))):
            self.assert_learns_as(own, losses, net, samples, cut, task={"loss": "cross-entropy"}, **keys)

    def test_what_no_gradient_reaches_does_not_decay(self):
        net = Of(lambda x, first, last: last(first(x).detach()), nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1))
        first, last = (one.weight.detach().clone() for one in net.modules_)
        trainer = plain(net, optimizer={"kind": "adamw", "weight_decay": 0.5})
        list(trainer.run(pictures(4)))
        after = [weight for name, weight in trainer.state_dict().items() if name.endswith("weight")]
        self.assertTrue(torch.equal(after[0], first))
        self.assertFalse(torch.equal(after[1], last))

    def test_a_sample_stays_as_it_is(self):
        def ahead(change):
            torch.manual_seed(0)
            return nn.Sequential(Of(change), nn.Conv2d(3, 4, 1), nn.Conv2d(4, 3, 1))
        sample = torch.rand(1, 3, 8, 8)
        before = sample.clone()
        millrace.export(ahead(normalize), sample)
        self.assertTrue(torch.equal(sample, before))
        for keys in ({}, {"stages": 2, "cut": [1]}, {"task": {"kind": "next-frame", "context": 1}}):
            changed, copied = ([result.loss for result in plain(ahead(change), **keys).run(pictures(4))]
                               for change in (normalize, lambda x: normalize(x.clone())))
            self.assertEqual(changed, copied)

    @program.each((lambda: Of(lambda x, conv: conv(conv(x)), nn.Conv2d(3, 3, 3, padding=1)), 1), (networks.Tied, 2),
                  (networks.Rows, 1), (Quiet, 2), (Table, 2), (Buffers, 5), *(
                      (lambda work=work, parts=parts: Of(work, *(nn.Conv2d(3, 3, 3, padding=1) for _ in range(parts))), parts)
                      for work, parts in ((filled, 1), (added, 1), (half, 1), (flipped, 1), (windows, 2),
                                          (lambda x, conv: conv(torch.cat([x] if isinstance(x, torch.Tensor) else x, 1)), 1),
                                          (lambda x, a, b: b(a(x).view(1, b.weight.shape[0], 16, 24)), 2))))
    def test_what_is_hard_to_trace_learns_as_in_pytorch(self, kind, parts):
        own, frames = made(kind), pictures(8)
        losses = loop(own, zip(frames, frames), of_picture)
        self.assert_learns_as(own, losses, made(kind), frames, [])
        self.assertGreaterEqual(len(millrace.export(made(kind), frames[0][None]).parts), parts)

    def test_weights_of_a_shared_parameter_travel_under_all_its_names(self):
        net, start = made(networks.Tied), self.folder / "start.safetensors"
        millrace.export(net, torch.rand(1, 3, 16, 24)).save(self.folder / "net.pt")
        whole = {name: value.clone() for name, value in net.state_dict().items()}
        only = {name: value for name, value in whole.items() if name != "first.weight"}  # as safetensors' save_model()
        for state in ({}, whole, only):
            save_file(state, start)
            self.learn(self.file_tables(model={"weights": start if state else ""}), "--frames", 4)
            learned = self.weights()
            net.load_state_dict(learned)
            self.assertTrue(torch.equal(learned["first.weight"], learned["last.weight"]))
        for name in ("first.weight", "last.weight"):
            self.learn(self.file_tables(model={"freeze": [name]}), "--frames", 4)
            self.assertTrue(torch.equal(self.weights()[name], whole[name]))
        save_file({**whole, "last.weight": whole["last.weight"] + 1}, start)
        self.assert_refuses("check", self.file_tables(model={"weights": start}),
                            "\"first.weight\" and \"last.weight\" are one parameter of the network, but differ")

    def test_loaded_weights_count_everywhere(self):
        frames = pictures(3)
        other, trainer = made(Buffers, seed=5), plain(made(Buffers))
        list(trainer.run(frames))
        trainer.load_state_dict(other.state_dict())
        self.assert_learns(trainer, frames, loop(other, zip(frames, frames), of_picture), other)
        trainer = plain(Versioned(3, 3, 1))
        list(trainer.run(frames))
        learned = trainer.state_dict()
        trainer.load_state_dict(learned)
        self.assertTrue(torch.equal(trainer.state_dict()["weight"], 2 * learned["weight"]))
        self.assertEqual(trainer.state_dict()["_extra_state"], {"version": 1})

    def test_a_modules_weights_fit_its_file_and_come_back_whole(self):
        net, start = made(Constants), self.folder / "start.safetensors"
        millrace.export(net, torch.rand(1, 3, 16, 24)).save(self.folder / "net.pt")
        save_file(net.state_dict(), start)
        tables = self.file_tables(model={"weights": start}, output={"weights": self.folder / "out.safetensors"})
        self.succeed("run", self.write(tables), "--frames", 4, "--quiet")
        learned = self.weights()
        net.load_state_dict(learned)
        trainer = millrace.Trainer(model={"preset": "file", "file": str(self.folder / "net.pt")}, task="autoencode")
        list(trainer.run(pictures(2)))
        self.assertEqual(set(trainer.state_dict()), set(learned))
        trainer.load_state_dict(learned)
        self.assert_same(trainer.state_dict(), learned)

    def test_a_trainer_counts_the_parts_of_the_export(self):
        def of_weights(x, first, norm, last):
            return last(nn.functional.batch_norm(first(x), None, None, norm.weight.flatten(), None, True))

        def of_a_number(x, first, norm, last):
            y = first(x)
            return last(torch.relu(y)) * y.mean()
        for forward, parts in ((of_weights, 3), (of_a_number, 4)):
            net = Of(forward, nn.Conv2d(3, 4, 1), nn.Conv2d(1, 4, 1, bias=False), nn.Conv2d(4, 3, 1))
            self.assertEqual(len(millrace.export(net).parts), parts)
            list(plain(net, stages=parts, cut=[*range(1, parts)]).run(pictures(2)))

    def test_sizes_that_decide_are_fixed(self):
        def odd(x, conv):
            return conv(nn.functional.pad(x, (0, 0, 0, 1)) if x.shape[2] % 2 else x)

        def turned(x, conv):
            return conv(x.transpose(2, 3)).transpose(2, 3) if x.shape[2] > x.shape[3] else conv(x)

        def pooled(x, conv):
            return conv(nn.functional.avg_pool2d(x, 2) if min(x.shape[2:]) >= 64 else x)

        def cropped(x, conv):
            return conv(nn.functional.pad(x, (0, 8)))[..., :x.shape[2], :x.shape[3]]
        for work, size in ((odd, [16, 24]), (turned, [16, 24]), (pooled, [16, 24]), (cropped, None)):
            for wrap in (Of, lambda *given: nn.Sequential(Of(*given), nn.InstanceNorm2d(3))):
                with self.subTest(work.__name__):
                    net = wrap(work, nn.Conv2d(3, 3, 1))
                    self.assertEqual(millrace.export(net, torch.rand(1, 3, 16, 24)).size, size)

    def test_a_file_of_what_counts_with_sizes_is_of_one_size(self):
        for of, fixed in ((lambda x, last: last(x) * float(x.shape[2]) ** 0.5, True), (lambda x, last: last(x), False)):
            millrace.export(Of(of, nn.Conv2d(3, 3, 1)), torch.rand(1, 3, 12, 16)).save(self.folder / "net.pt")
            for height, code in ((12, program.DONE), (24, program.BAD_USAGE if fixed else program.DONE)):
                tables = self.file_tables(source={"width": 16, "height": height}, pipeline={"stages": 1})
                done = program.call("run", self.write(tables), "--frames", "4", "--quiet")
                self.assert_code(code, done)
            self.assertIn("--sample 3x24x16" if fixed else "", done.err)

    def test_what_cant_be_cut_is_said_in_a_line(self):
        def tied():
            net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 3, 1))
            net[1].weight.data = net[0].weight.data.transpose(0, 1)
            return net
        cases = {"0.weight and 1.weight share their memory": tied,
                 "data-dependent control flow: networks.py, line": networks.Asks,
                 "Sign is an autograd.Function": lambda: nn.Sequential(nn.Conv2d(3, 3, 1), Of(Sign.apply)),
                 "torch.utils.checkpoint is one": lambda: nn.Sequential(nn.Conv2d(3, 3, 1), Checkpointed(nn.Conv2d(3, 3, 1))),
                 "it gives torch.float64": lambda: nn.Sequential(nn.Conv2d(3, 3, 1), Of(torch.Tensor.double)),
                 "gives a tuple": lambda: nn.Sequential(nn.Conv2d(3, 3, 1), Of(lambda x: (x + 1, x))),
                 "draw random numbers": lambda: Of(lambda x: nn.functional.dropout(x + 0.1)),
                 "puts a hook on a gradient": lambda: Of(lambda x, last: [y := last(x), y.register_hook(abs)][0], nn.Conv2d(3, 3, 1)),
                 "keep what it has seen": lambda: nn.Sequential(nn.Conv2d(3, 3, 1), Adapts()),
                 "changes a part of a tensor": lambda: Of(lambda x, last: [x[:, :1].mul_(2), last(x)][1], nn.Conv2d(3, 3, 1)),
                 "asks for a tensor's values": lambda: nn.Sequential(Of(lambda x: x + max(x.detach().flatten().tolist()))),
                 "bias has a hook": lambda: hooked(
                     lambda net: net.bias.register_post_accumulate_grad_hook(lambda bias: None)),
                 "changes modules_.0.running_mean": lambda: Of(lambda x, norm: norm.train()(x), nn.BatchNorm2d(3)),
                 "changes modules_.0.weight": lambda: Of(renormed, nn.Conv2d(3, 3, 1)),
                 "changes modules_.1.bias": lambda: Of(clamped, nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)),
                 "__round__": lambda: Of(lambda x: nn.functional.interpolate(x, [round(side * 1.0) for side in x.shape[2:]])),
                 "requires grad as a constant": lambda: Of(lambda x, scale=nn.Parameter(torch.ones(1)): x * scale),
                 "modules_.0 is TorchScript": lambda: Of(None, torch.jit.script(nn.ReLU())),
                 "cannot pickle": lambda: Of(threading.Lock()),
                 "does it use .data": lambda: nn.Sequential(nn.Conv2d(3, 3, 1), Of(lambda x: x.data)),
                 "modules_.0.weight has another gradient": lambda: Of(lambda x, first, last: last(torch.no_grad()(first)(x)),
                                                             nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)),
                 "weight has a hook": lambda: hooked(lambda net: net.weight.register_hook(lambda gradient: 0))}
        self.assert_errors({words: lambda kind=kind: millrace.export(made(kind))
                                  for words, kind in cases.items()})
        frozen = millrace.Trainer(made(networks.ResNet), freeze=["layer9.*"], stages=1, loss="cross-entropy")
        self.assert_errors({"layer9.*": lambda: next(frozen.run(class_samples(1, (3, 32, 32))))})

    def exported(self, function):
        """(exit code, stderr) of the command that writes net.pt, here: PyTorch takes seconds to load."""
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err:
            code = export_main(["-o", str(self.folder / "net.pt"), *function.split()])
        return code, err.getvalue()

    def file_tables(self, uri="synth:shapes", **tables):
        """The config of a run of net.pt."""
        return program.merged({"source": {"uri": uri, "width": 24, "height": 16}, "task": {"kind": "autoencode"},
                               "model": {"preset": "file", "file": self.folder / "net.pt"}}, tables)

    def test_a_file_is_written_through_links_and_into_pipes(self):
        exported, link, pipe = millrace.export(nn.Conv2d(3, 3, 1)), self.folder / "link.pt", self.folder / "pipe.pt"
        link.symlink_to("net.pt")
        exported.save(link)
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        exported.save(pipe)
        self.assertTrue(link.is_symlink() and pipe.is_fifo())
        self.assertTrue(torch.jit.load(self.folder / "net.pt"))
        self.assertTrue(torch.jit.load(io.BytesIO(os.read(reader, 1 << 20))))

    def test_its_module_does_not_hide_the_function(self):
        program.output_of(sys.executable, "-c", "import millrace.export; import torch; millrace.export(torch.nn.Conv2d(3, 3, 1))")

    def test_the_program_runs_an_exported_file(self):
        command = (sys.executable, "-m", "millrace.export", f"{HERE}/networks.py:make", "-o", "net.pt")
        self.assertIn("Sequential in 6 parts", program.output_of(*command, cwd=self.folder))
        frames = program.random_frames(seed=3, count=12, channels=3)
        uri = program.write_frames(self.folder / "frames", frames)
        own = not_in_place(networks.make())
        stages = reference.cut_network(own, [2], reference.sgd(0.0, LR))
        reference.partime(stages, reference.autoencode(frames))
        tables = self.file_tables(uri, pipeline={"cut": [2], "capture": "eager"}, optimizer={"lr": LR})
        self.learn(tables)
        self.assert_weights(own.state_dict())
        (self.folder / "net.pt").write_bytes(b"no archive")
        self.assert_refuses("check", tables, "net.pt: not a TorchScript file")

    def test_a_teacher_that_fails_midway_ends_the_run_and_loses_nothing(self):
        folder = self.folder
        (folder / "teacher.py").write_text(
            "import torch\n\n\nclass Teacher(torch.nn.Module):\n"
            "    def __init__(self):\n        super().__init__()\n        self.table = torch.nn.Parameter(torch.zeros(1))\n\n"
            "    def forward(self, x):  # the table has no second entry for bright pictures\n"
            "        return x + torch.index_select(self.table, 0, (x.mean() > 0.7).long().reshape(1))\n")
        self.assertEqual(self.exported(f"{folder}/teacher.py:Teacher"), (0, ""))
        frames = program.random_frames(seed=3, count=12, channels=3) // 16
        frames[6:] = 255 - frames[6:]
        uri = program.write_frames(folder / "frames", frames)
        for schedule in ("sequential", "partime"):
            config = self.write({
                "source": {"uri": uri, "width": 24, "height": 16}, "pipeline": {"schedule": schedule},
                "task": {"kind": "teacher", "teacher": folder / "net.pt"},
                "output": {"weights": folder / "out.safetensors", "report": folder / "report.json"}})
            outcome = program.call("run", config, "--quiet")
            self.assert_refused(program.FAILED, outcome, "task.teacher: ", "net.pt: ", "index out of range in self")
            counts = json.loads((folder / "report.json").read_text())["frames"]
            self.assertLessEqual(counts["trained"], 6)
            self.assert_accounted(counts)
            (folder / "out.safetensors").unlink()

    def test_batch_norms_and_code_are_told_of(self):
        self.assertEqual(self.exported(f"{HERE}/networks.py:make_resnet --sample 3x64x64"), (0, ""))
        said = self.succeed("check", self.write(self.file_tables(task={"kind": "label", "loss": "cross-entropy"}))).out
        self.assertIn("batch norms keep their running statistics", said)
        self.assertIn("TorchScript", said)

    @program.each(("no such file", "none.py:make"), ("has no function", f"{HERE}/networks.py:mak"),
                  ("data-dependent", f"{HERE}/networks.py:Asks"), ("must be CxHxW", f"{HERE}/networks.py:make --sample 3x"))
    def test_the_command_says_what_is_wrong(self, words, function):
        code, err = self.exported(function)
        self.assertEqual((code, err.count("\n")), (2, 1), err)
        self.assertIn(words, err)
        self.assertFalse((self.folder / "net.pt").exists())

    def test_the_command_replaces_neither_its_input_nor_another_format(self):
        net = self.folder / "net.py"
        net.write_text("raise SystemExit")
        (self.folder / "link.pt").symlink_to(net)
        for out, words in (("net.py", f"would replace {net}"), ("link.pt", f"would replace {net}"),
                           ("net.onnx", "is TorchScript: call it FILE.pt")):
            code, err = self.exported(f"{net}:make -o {self.folder / out}")
            self.assertEqual((code, err), (2, f"millrace.export: error: {self.folder / out}: {words}\n"))
        self.assertEqual(net.read_text(), "raise SystemExit")
