"""The update rules in plain PyTorch, written from their definitions, independently of the program.

A network is an nn.Sequential, a stage a slice of it with an optimizer of its own, a sample a pair
(input, target) of float32 [1,C,H,W]. Each rule trains the stages in place and returns the losses. Most are
written by versions: W[i][v] is what v updates made of stage i's weights, and a sample names the version at
which each stage runs it. There is no pipeline, so there is no timing to get wrong.
"""

import torch
from safetensors.torch import load_file, save_file
from torch import nn

import program

torch.set_num_threads(1)  # as in a stage: the order of sums depends on it


class ReferenceTest(program.CliTest):
    """Runs that are held against PyTorch. Operators as they are do the same in the same order, so that bits are the same."""

    def weights(self):
        """What the last run learned."""
        return load_file(self.folder / "out.safetensors")

    def start_file(self, network):
        """The network's weights as a file."""
        save_file(network.state_dict(), self.folder / "start.safetensors")
        return self.folder / "start.safetensors"

    def assert_weights(self, expected, **near):
        """The last run's are these, to the bit or as torch.allclose() has it."""
        self.assert_same(self.weights(), expected, **near)

    def assert_same(self, state, expected, **near):
        self.assertEqual(state.keys(), expected.keys())
        for name, want in expected.items():
            close = torch.allclose(state[name], want, **near) if near else torch.equal(state[name], want)
            self.assertTrue(close, f"{name} is off by {(state[name] - want).abs().max()}")

    def learn_as(self, network, samples, loss_of, tables, *options, lr=0.1):
        """Learns as train() does, to the bit. Returns the report and what the network told."""
        report, _ = self.learn(tables, *options, trained=len(samples))
        losses, told = train(network, samples, loss_of, lr)
        self.assert_weights(network.state_dict())
        self.assertAlmostEqual(report["loss"]["mean"], sum(losses) / len(samples), places=6)
        return report, told


class Residual(nn.Conv2d):
    """x + relu(conv(x))."""

    def __init__(self, channels, kernel):
        super().__init__(channels, channels, kernel, padding=kernel // 2)

    def forward(self, x):
        return x + nn.functional.relu(super().forward(x))


class Scale(nn.Module):
    def forward(self, x):
        return x * 0.25


def residual_cnn(layers, features, kernel, channels, context):
    """conv, relu, (layers-2) x residual, conv, scale."""
    return nn.Sequential(nn.Conv2d(context * channels, features, kernel, padding=kernel // 2), nn.ReLU(),
                         *[Residual(features, kernel) for _ in range(layers - 2)],
                         nn.Conv2d(features, channels, kernel, padding=kernel // 2), Scale())


def partime_cnn(layers, features, kernel, channels):
    """(layers-1) x {conv, relu}, conv, sigmoid; padding keeps the size."""
    modules = []
    for index in range(layers):
        last = index == layers - 1
        modules.append(nn.Conv2d(features if index else channels, channels if last else features,
                                 kernel, padding=kernel // 2))
        modules.append(nn.Sigmoid() if last else nn.ReLU())
    return nn.Sequential(*modules)


def tensors(frames):
    """[n,H,W,C] bytes as n tensors [1,C,H,W], value/255."""
    return [torch.from_numpy(frame).permute(2, 0, 1).unsqueeze(0).contiguous().float() / 255 for frame in frames]


def autoencode(frames):
    return [(x, x) for x in tensors(frames)]


def next_frame(frames):
    """The target of a frame is its successor."""
    x = tensors(frames)
    return list(zip(x, x[1:]))


def change(frames, context):
    """The latest `context` frames, oldest first, the first one standing for those before it; the target is the next
    frame, and the prediction the last one plus what the network gives."""
    x = tensors(frames)
    past = [x[0]] * (context - 1) + x
    return [(torch.cat(past[n:n + context], 1), x[n + 1], x[n]) for n in range(len(x) - 1)]


def loss_of(y, sample):
    """The loss of what the network gives of a sample (input, target), or (input, target, frame to add it to)."""
    _, target, *base = sample
    return nn.functional.mse_loss(y + base[0] if base else y, target)


def sgd(momentum, lr):
    return lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=momentum)


def train(network, samples, loss_of, lr=0.1):
    """Plain SGD, a step a sample (input, target). Returns losses and what the network told."""
    optimizer = torch.optim.SGD(network.parameters(), lr=lr)
    losses, told = [], []
    for x, target in samples:
        y = network(x)
        loss = loss_of(y, target)
        losses.append(loss.item())
        told.append(y.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses, told


def orthogonal(make, decay):
    """Optimizers that see of each tensor's gradient what is orthogonal to its running mean (arXiv 2504.01961)."""
    def made(parameters):
        optimizer = make(parameters)
        means, step = [torch.zeros_like(parameter) for parameter in parameters], optimizer.step

        def project_and_step():
            for parameter, c in zip(parameters, means):
                g = parameter.grad
                parameter.grad = torch.addcmul(g, c, (g * c).sum() / (c * c).sum().clamp_min(1e-30), value=-1)
                c.mul_(decay).add_(g, alpha=1 - decay)
            step()

        optimizer.step = project_and_step
        return optimizer
    return made


class Stage:
    """Modules between two cuts, run at any version of their weights; gradients are passed in and out by hand."""

    def __init__(self, modules, make_optimizer):
        self.modules = modules
        named = dict(modules.named_parameters())
        self.names, self.parameters = list(named), list(named.values())
        self.optimizer = make_optimizer(self.parameters) if self.parameters else None
        self.versions = []  # after 0, 1, ... updates
        self.keep()
        self.age = 0  # of the last update's gradient

    def keep(self):
        self.versions.append([parameter.detach().clone() for parameter in self.parameters])

    def forward(self, x, first, version=-1):
        """The graph's input, detached from the stage before, its weights and its output."""
        x = x.detach().requires_grad_(not first)
        weights = [weight.detach().requires_grad_() for weight in self.versions[version]]
        return x, weights, torch.func.functional_call(self.modules, dict(zip(self.names, weights)), (x,))

    def backward(self, x, weights, y, gradient):
        """The weights' gradients, and the input's, or None for the first stage."""
        wanted = weights + ([x] if x.requires_grad else [])
        gradients = list(torch.autograd.grad(y, wanted, gradient)) if wanted else []
        into = gradients.pop() if x.requires_grad else None
        return gradients, into

    def update(self, gradients, age=0):
        """By the mean of `gradients`, lists of one tensor a parameter, as sum and then quotient."""
        for parameter, *found in zip(self.parameters, *gradients):
            total = found[0].clone()
            for more in found[1:]:
                total += more
            parameter.grad = total / len(found) if len(found) > 1 else total
        if self.optimizer:
            self.optimizer.step()
        self.keep()
        self.age = age


def cut_network(network, cut, make_optimizer):
    places = [0, *cut, len(network)]
    return [Stage(network[begin:end], make_optimizer) for begin, end in zip(places, places[1:])]


def loss_and_gradient(y, sample, loss_of=loss_of):
    loss = loss_of(y, sample)
    return loss.item(), torch.autograd.grad(loss, y, retain_graph=True)[0]


def train_by_versions(stages, samples, spans, version_of):
    """Stage i updates after each spans[i] samples, with their mean gradient; sample m goes forward and back at
    stage i at version_of(m, i). Updates that the stream cannot fill are skipped."""
    losses, pending = [], [[] for _ in stages]
    for m, sample in enumerate(samples):
        ends, x = [], sample[0]
        for i, stage in enumerate(stages):
            ends.append(stage.forward(x, i == 0, version_of(m, i)))
            x = ends[-1][2]
        loss, gradient = loss_and_gradient(x, sample)
        losses.append(loss)
        for stage, end, waiting in zip(reversed(stages), reversed(ends), reversed(pending)):
            found, gradient = stage.backward(*end, gradient)
            waiting.append(found)
        for stage, waiting, span in zip(stages, pending, spans):
            if len(waiting) == span:
                stage.update(waiting)
                waiting.clear()
    return losses


def by_versions(version_of, groups=False):
    """The rule by which sample m meets stage i of n at version_of(m, i, n, group), and an update takes one or `group` samples."""
    def rule(stages, samples, group=1):
        n, span = len(stages), group if groups else 1
        return train_by_versions(stages, samples[:len(samples) // span * span], [span] * n, lambda m, i: version_of(m, i, n, group))
    return rule


sequential = by_versions(lambda m, *_: m)  # each sample through all stages and back before the next one
pipedream = by_versions(lambda m, i, n, _: max(0, m - (n - i) + 1))
pipedream_vertical_sync = by_versions(lambda m, i, n, _: max(0, m - n + 1))
two_buffered = by_versions(lambda m, i, n, group: max(0, m // group - 1), groups=True)
flushed = by_versions(lambda m, i, n, group: m // group, groups=True)


def partime(stages, samples, **_):
    """Through sample m a stage backpropagates the gradient that the next one found at sample m-2; the last stage that of its own
    loss, at once. Then it updates."""
    losses, sent = [], {}  # (gradient, the sample of its loss), by the stage and sample at which it was found
    for m, sample in enumerate(samples):
        x = sample[0]
        for i, stage in enumerate(stages):
            end = stage.forward(x, i == 0)
            x = end[2]
            if stage is stages[-1]:
                loss, gradient = loss_and_gradient(x, sample)
                losses.append(loss)
                sent[i + 1, m - 2] = gradient, m
            if (i + 1, m - 2) in sent:  # no gradient yet, no update
                gradient, origin = sent.pop((i + 1, m - 2))
                found, into = stage.backward(*end, gradient)
                sent[i, m] = into, origin
                stage.update([found], age=m - origin)
    return losses


def auxiliary_head(channels, target, kernel, place, make_optimizer, end=nn.Sigmoid):
    """From a stage's maps to the target; its weights begin from the number of the module after the stage."""
    torch.manual_seed(place)
    return Stage(nn.Sequential(nn.Conv2d(channels, target, kernel, padding=kernel // 2), end()), make_optimizer)


def in_8_bits(x):
    """Each line, over its channels and columns, in 255 steps of its range."""
    least, most = x.amin((0, 1, 3), keepdim=True), x.amax((0, 1, 3), keepdim=True)
    step = (most - least) * (1 / 255)
    return least + ((x - least) / step).nan_to_num(0).round() * step


def deep_supervision(stages, heads, samples, weight, stored=in_8_bits, loss_of=loss_of):
    """At its step with sample n, a stage d stages from the end applies the gradient of its head's loss on n plus, with
    weight / sqrt(1 + 2d), that of the last stage's loss on n - 2d, through that sample's own input at the weights of now,
    as `stored` unless it is a frame. A sample whose target is None gives neither gradient: the other part is applied
    alone, and a head without one makes no step. Without a weight it learns from its head alone, from the sample on at
    which the first gradient would have come. Returns the losses of the last stage."""
    losses, inputs, gradients, last = [], {}, {}, len(stages) - 1
    told = {n for n, sample in enumerate(samples) if sample[1] is not None}
    for n in range(len(samples) + (2 * last if weight else 0)):
        x = samples[n][0] if n < len(samples) else None
        for i, stage in enumerate(stages):
            d, y, total = last - i, None, None
            m = n - 2 * d
            if n < len(samples):
                inputs[i, n] = stored(x) if 0 < i < last else x
                _, weights, y = stage.forward(x, first=True)
            if i < last and 0 <= m and n in told:
                found = torch.autograd.grad(loss_of(heads[i].modules(y), samples[n]), weights + heads[i].parameters)
                total = [gradient.clone() for gradient in found[:len(weights)]]
                for parameter, gradient in zip(heads[i].parameters, found[len(weights):]):
                    parameter.grad = gradient
                heads[i].optimizer.step()
            if m in told and (weight or not d):
                end = stage.forward(inputs.pop((i, m)), i == 0)
                if i == last:
                    loss, gradient = loss_and_gradient(end[2], samples[m], loss_of)
                    losses.append(loss)
                else:
                    gradient = gradients.pop((i + 1, m))
                found, gradients[i, m] = stage.backward(*end, gradient)
                share = weight / (1 + 2 * d) ** 0.5 if d else 1.0
                total = ([sum_.add_(g, alpha=share) for sum_, g in zip(total, found)] if total else
                         [g * share for g in found])
            if total:
                stage.update([total], age=2 * d)
            x = y
    return losses


def pipedream_replicated(replicas):
    """Each replica of stage i keeps as many samples in flight as its share of the workers from i on, rounded up; an
    update takes one sample of each replica."""
    in_flight = [-(-sum(replicas[i:]) // count) for i, count in enumerate(replicas)]

    def rule(stages, samples, **_):
        return train_by_versions(stages, samples, replicas, lambda m, i: max(0, m // replicas[i] - in_flight[i] + 1))
    return rule


def pb(stages, samples, **_):
    """Stage i, d stages from the end, forwards sample m at version max(0, m-2d). 2d samples later it takes m back at
    version m, through the saved activations: autograd saved the inputs, and the weights are changed under it."""
    losses = []
    for m, sample in enumerate(samples):
        ends, x = [], sample[0]
        for i, stage in enumerate(stages):
            version = max(0, m - 2 * (len(stages) - 1 - i))
            kept, stage.versions[version] = stage.versions[version], [w.clone() for w in stage.versions[version]]
            ends.append(stage.forward(x, i == 0, version))
            stage.versions[version] = kept
            x = ends[-1][2]
        loss, gradient = loss_and_gradient(x, sample)
        losses.append(loss)
        for stage, end in zip(reversed(stages), reversed(ends)):
            for weight, now in zip(end[1], stage.versions[m]):
                weight.data.copy_(now)
            found, gradient = stage.backward(*end, gradient)
            stage.update([found])
    return losses


RULES = {"sequential": sequential, "partime": partime, "pb": pb, "pipedream": pipedream, "2bw": two_buffered,
         "gpipe": flushed, "1f1b": flushed, "zb-h1": flushed}
