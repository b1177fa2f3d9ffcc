"""Connections that skip over cuts: the same numbers as the uncut network, whose modules never heard of stages."""

import torch
from safetensors.torch import load_file, save_file
from torch import nn

import program
import reference

LR = 0.3
MICROBATCHES = 4
LAYERS = [{"type": "conv", "out": 6, "kernel": 3}, {"type": "relu"}, {"type": "conv", "out": 6, "kernel": 3},
          {"type": "add", "from": 1}, {"type": "relu"}, {"type": "conv", "out": 6, "kernel": 3},
          {"type": "concat", "from": -1}, {"type": "conv", "out": 3, "kernel": 3}, {"type": "sigmoid"}]
JOINS = {3: (1, torch.add), 6: (-1, lambda x, y: torch.cat((x, y), 1))}
CUTS = [[3], [2, 4], [1, 5, 7]]


class Skipping(nn.Module):
    """LAYERS; values are keyed by the module that gave them, -1 being the sample."""

    def __init__(self):
        super().__init__()
        modules = [nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 6, 3, padding=1), nn.Identity(), nn.ReLU(),
                   nn.Conv2d(6, 6, 3, padding=1), nn.Identity(), nn.Conv2d(9, 3, 3, padding=1), nn.Sigmoid()]
        for index, module in enumerate(modules):
            self.add_module(str(index), module)
        self.count = len(modules)

    def run(self, values, begin, end):
        values = dict(values)
        for index in range(begin, end):
            x = values[index - 1]
            if index in JOINS:
                source, join = JOINS[index]
                x = join(x, values[source])
            values[index] = getattr(self, str(index))(x)
        return values

    def forward(self, x):
        return self.run({-1: x}, 0, self.count)[self.count - 1]

    def crossing(self, place):
        """What later modules need of what came before `place`."""
        return sorted({place - 1} | {source for index, (source, _) in JOINS.items() if index >= place > source})


def by_versions(network, cut, samples, group, version_of):
    """Minibatches on the whole network, each stage's weights at the version its schedule asks for."""
    places = [0, *cut, network.count]
    stage_of = {name: sum(int(name.split(".")[0]) >= place for place in places) - 1
                for name, _ in network.named_parameters()}
    versions = [{name: p.detach().clone() for name, p in network.named_parameters()}]
    for begin in range(0, len(samples) - group + 1, group):
        total = {}
        for m in range(begin, begin + group):
            weights = {name: versions[version_of(m, stage)][name].requires_grad_()
                       for name, stage in stage_of.items()}
            y = torch.func.functional_call(network, weights, (samples[m][0],))
            found = torch.autograd.grad(nn.functional.mse_loss(y, samples[m][1]), list(weights.values()))
            for name, gradient in zip(weights, found):
                total[name] = total[name] + gradient if name in total else gradient
        versions.append({name: (w - LR * (total[name] / group)).detach() for name, w in versions[-1].items()})
    return versions[-1]


def partime(network, cut, samples):
    """As reference.partime, what goes over a cut being several values."""
    places = [0, *cut, network.count]
    count = len(places) - 1
    weights = {name: p for name, p in network.named_parameters()}
    activations, gradients = {}, {}
    for step in range(len(samples) + count - 1):
        sent_activations, sent_gradients = {}, {}
        for i, (begin, end) in enumerate(zip(places, places[1:])):
            m = step - i
            if not 0 <= m < len(samples):
                continue
            inputs = {-1: samples[m][0]} if i == 0 else {k: v.detach().requires_grad_() for k, v in activations[i].items()}
            values = network.run(inputs, begin, end)
            outputs = {k: values[k] for k in network.crossing(end)}
            if i == count - 1:
                loss = nn.functional.mse_loss(values[end - 1], samples[m][1])
                roots, arrived = [loss], [torch.ones(())]
            else:
                sent_activations[i + 1] = outputs
                if i not in gradients:
                    continue
                roots = [v for v in outputs.values() if v.requires_grad]
                arrived = [gradients[i][k] for k, v in outputs.items() if v.requires_grad]
            mine = [p for name, p in weights.items() if begin <= int(name.split(".")[0]) < end]
            wanted = mine + (list(inputs.values()) if i else [])
            found = torch.autograd.grad(roots, wanted, arrived)
            sent_gradients[i - 1] = dict(zip(inputs, found[len(mine):]))
            with torch.no_grad():
                for p, gradient in zip(mine, found):
                    p -= LR * gradient
        activations, gradients = sent_activations, sent_gradients
    return {name: p.detach() for name, p in weights.items()}


class SkipConnections(program.CliTest):

    def compare(self, schedule, cut, train):
        frames = program.random_frames(seed=5, count=20)
        torch.manual_seed(4)
        network = Skipping()
        save_file(network.state_dict(), self.folder / "start.safetensors")
        self.learn({
            "source": {"uri": program.write_frames(self.folder / "frames", frames), "width": 24, "height": 16},
            "model": {"preset": "layers", "layer": LAYERS, "weights": self.folder / "start.safetensors"},
            "pipeline": {"schedule": schedule, "stages": len(cut) + 1, "cut": cut, "microbatches": MICROBATCHES},
            "optimizer": {"lr": LR}})
        got = load_file(self.folder / "out.safetensors")
        for name, want in train(network, cut, reference.autoencode(frames)).items():
            # Sums of several gradients may be taken in another order.
            self.assertTrue(torch.allclose(got[name], want, rtol=1e-4, atol=1e-6),
                            f"{schedule} at {cut}: {name} is off by {(got[name] - want).abs().max()}")

    def each_cut(self, schedule, train):
        for cut in CUTS:
            with self.subTest(schedule=schedule, cut=cut):
                self.compare(schedule, cut, train)

    def test_partime(self):
        self.each_cut("partime", partime)

    def test_pipedream(self):
        self.each_cut("pipedream", lambda network, cut, samples: by_versions(
            network, cut, samples, 1, lambda m, i: max(0, m - (len(cut) + 1 - i) + 1)))

    def test_2bw(self):
        self.each_cut("2bw", lambda network, cut, samples: by_versions(
            network, cut, samples, MICROBATCHES, lambda m, i: max(0, m // MICROBATCHES - 1)))

    def test_flushed(self):
        for schedule in ("gpipe", "1f1b", "zb-h1"):
            self.each_cut(schedule, lambda network, cut, samples: by_versions(
                network, cut, samples, MICROBATCHES, lambda m, i: m // MICROBATCHES))
