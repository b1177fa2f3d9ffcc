"""The update rules of the schedules that keep activations or weights, in plain PyTorch.

Written from their definitions, by versions: W[i][v] is what v updates made of stage i's weights, and a
sample names the version at which each stage runs it. There is no pipeline, so there is no timing to get
wrong. Plain SGD; everything float32.
"""

import torch
from torch import nn

from reference import orthogonal_part

aten = torch.ops.aten


class VersionedStage:
    """A slice of an nn.Sequential, run at any of its versions."""

    def __init__(self, modules, lr, orthogonal=0.0):
        self.modules = modules
        self.names = [name for name, _ in modules.named_parameters()]
        self.versions = [[p.detach().clone() for p in modules.parameters()]]
        self.lr, self.decay = lr, orthogonal
        self.means = [torch.zeros_like(w) for w in self.versions[0]]

    def forward(self, x, version, first):
        x = x.detach().requires_grad_(not first)
        weights = [w.detach().requires_grad_() for w in self.versions[version]]
        y = torch.func.functional_call(self.modules, dict(zip(self.names, weights)), (x,))
        return x, weights, y

    def update(self, gradients):
        """The mean of `gradients`, lists of one tensor a parameter, as sum and then quotient."""
        total = [g.clone() for g in gradients[0]]
        for more in gradients[1:]:
            for into, g in zip(total, more):
                into += g
        if len(gradients) > 1:
            total = [g / len(gradients) for g in total]
        if self.decay:
            total = [orthogonal_part(g, c, self.decay) for g, c in zip(total, self.means)]
        self.versions.append([w.add(g, alpha=-self.lr) for w, g in zip(self.versions[-1], total)])


def cut_network(network, cut, lr, orthogonal=0.0):
    places = [0, *cut, len(network)]
    return [VersionedStage(network[a:b], lr, orthogonal) for a, b in zip(places, places[1:])]


def take_versions(stages):
    """Gives the modules the weights that their stages have learned."""
    with torch.no_grad():
        for stage in stages:
            for parameter, value in zip(stage.modules.parameters(), stage.versions[-1]):
                parameter.copy_(value)


def train_by_versions(stages, samples, spans, version_of):
    """Stage i updates after each spans[i] samples, with their mean gradient; sample m goes forward and back at
    stage i at version_of(m, i). Updates that the stream cannot fill are skipped. Returns losses."""
    losses, pending = [], [[] for _ in stages]
    for m, (x, target) in enumerate(samples):
        ends = []
        for i, stage in enumerate(stages):
            ends.append(stage.forward(x, version_of(m, i), first=i == 0))
            x = ends[-1][2]
        loss = nn.functional.mse_loss(x, target)
        losses.append(loss.item())
        gradient = torch.autograd.grad(loss, x, retain_graph=True)[0]
        for i in reversed(range(len(stages))):
            x, weights, y = ends[i]
            found = list(torch.autograd.grad(y, weights + ([x] if i else []), gradient))
            gradient = found.pop() if i else None
            pending[i].append(found)
        for i, stage in enumerate(stages):
            if len(pending[i]) == spans[i]:
                stage.update(pending[i])
                pending[i] = []
    return losses


def whole_groups(samples, group):
    return samples[:len(samples) // group * group]


def pipedream(stages, samples, **_):
    n = len(stages)
    return train_by_versions(stages, samples, [1] * n, lambda m, i: max(0, m - (n - i) + 1))


def pipedream_vertical_sync(stages, samples, **_):
    n = len(stages)
    return train_by_versions(stages, samples, [1] * n, lambda m, i: max(0, m - n + 1))


def pipedream_replicated(replicas):
    """Each replica of stage i keeps as many samples in flight as its share of the workers from i on, rounded up; an
    update takes one sample of each replica."""
    in_flight = [-(-sum(replicas[i:]) // count) for i, count in enumerate(replicas)]

    def rule(stages, samples, **_):
        return train_by_versions(stages, samples, replicas, lambda m, i: max(0, m // replicas[i] - in_flight[i] + 1))
    return rule


def two_buffered(stages, samples, group):
    return train_by_versions(stages, whole_groups(samples, group), [group] * len(stages),
                             lambda m, i: max(0, m // group - 1))


def flushed(stages, samples, group):
    return train_by_versions(stages, whole_groups(samples, group), [group] * len(stages), lambda m, i: m // group)


def saved_forward(stage, x, version):
    """Every module's input and output at `version`."""
    weights, tape = iter(stage.versions[version]), []
    for module in stage.modules:
        if isinstance(module, nn.Conv2d):
            y = nn.functional.conv2d(x, next(weights), next(weights), padding=module.padding)
        else:
            y = module(x)
        tape.append((module, x, y))
        x = y
    return tape


def backward_at(stage, tape, version, gradient, first):
    """Through saved activations at the weights of another version. Returns weights' and input's gradients."""
    weights, found = list(stage.versions[version]), []
    for index in reversed(range(len(tape))):
        module, x, y = tape[index]
        if isinstance(module, nn.Conv2d):
            weights.pop()
            mask = [not (first and index == 0), True, True]
            gradient, of_weight, of_bias = aten.convolution_backward(
                gradient, x, weights.pop(), [y.shape[1]], [1, 1], list(module.padding), [1, 1], False, [0, 0], 1, mask)
            found = [of_weight, of_bias] + found
        elif isinstance(module, nn.ReLU):
            gradient = aten.threshold_backward(gradient, y, 0)
        else:
            gradient = aten.sigmoid_backward(gradient, y)
    return found, gradient


def pb(stages, samples, **_):
    """Stage i, d stages from the end, forwards sample m at version max(0, m-2d). 2d samples later it takes m back at
    version m, through the saved activations."""
    losses = []
    for m, (picture, target) in enumerate(samples):
        x, tapes = picture, []
        for i, stage in enumerate(stages):
            tapes.append(saved_forward(stage, x, max(0, m - 2 * (len(stages) - 1 - i))))
            x = tapes[-1][-1][2]
        y = x.detach().requires_grad_()
        loss = nn.functional.mse_loss(y, target)
        losses.append(loss.item())
        gradient = torch.autograd.grad(loss, y)[0]
        for i in reversed(range(len(stages))):
            found, gradient = backward_at(stages[i], tapes[i], m, gradient, first=i == 0)
            stages[i].update([found])
    return losses


RULES = {"pb": pb, "pipedream": pipedream, "2bw": two_buffered, "gpipe": flushed, "1f1b": flushed, "zb-h1": flushed}
