"""PyTorch's side of `millrace bench streams` and `peers`: the plain loop, frame by frame.

Reads jobs from standard input, one line of JSON each. Answers with the figures of a report for the frames it trained on
and for those after them, with the bytes of weights, gradients, state and saved activations, and with what it cost. With
`every` = k it predicts each frame and trains on every k-th, as on a stream that is k times too fast.
"""

import contextlib
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from events import seen
from measuring import Costs, serve


class Residual(nn.Conv2d):
    def forward(self, x):
        return x + torch.relu(super().forward(x))


class Multiply(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return self.factor * x


MODULES = {"relu": lambda layer: nn.ReLU(), "maxpool": lambda layer: nn.MaxPool2d(layer["kernel"]),
           "avgpool": lambda layer: nn.AvgPool2d(layer["kernel"]), "flatten": lambda layer: nn.Flatten(),
           "linear": lambda layer: nn.LazyLinear(layer["out"]), "multiply": lambda layer: Multiply(layer["slope"])}


def network(layers, sample, weights):
    """The network as PyTorch modules, with the program's initial weights; none given: PyTorch's own."""
    modules, channels = [], sample.size(1)
    for layer in layers:
        if layer["type"] in ("conv", "residual"):
            kernel, out = layer["kernel"], layer.get("out", channels)
            kind = Residual if layer["type"] == "residual" else nn.Conv2d
            modules.append(kind(channels, out, kernel, layer.get("stride", 1), padding=kernel // 2))
            channels = out
        else:
            modules.append(MODULES[layer["type"]](layer))
    made = nn.Sequential(*modules)
    made(sample)  # gives lazy layers their sizes
    if weights:
        made.load_state_dict(load_file(weights))
    return made


def learn(job):
    stream = (torch.from_numpy(frame).permute(2, 0, 1)[None].float() / 255 for frame in seen(Path(job["path"])))
    classes = job["classes"]
    before = now = next(stream)
    net = network(job["layers"], now if classes else torch.cat([now, now], 1), job["weights"])
    optimizer = {"adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop, "sgd": torch.optim.SGD}[job["optimizer"]](
        net.parameters(), lr=job["lr"])
    rate = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / 3 if job["warmup"] else 1, total_iters=job["warmup"])
    losses, beside, saved = [], [], {}  # beside: right answers, or errors of the last frame

    def keep(tensor):
        if not isinstance(tensor, nn.Parameter):
            saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    costs = Costs()
    for n in range(job["count"]):
        learns, coming = n < job["learn"] and n % job["every"] == 0, next(stream, None)
        watched = contextlib.nullcontext() if n else torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
        with torch.set_grad_enabled(learns), watched:
            if classes:
                scores = net(now)
                loss = functional.cross_entropy(scores, torch.tensor([classes[n]]))
                beside.append(float(scores.argmax() == classes[n]))
            else:
                loss = functional.mse_loss(now + net(torch.cat([before, now], 1)), coming)
                beside.append(functional.mse_loss(now, coming).item())
        losses.append(loss.item())
        if learns:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rate.step()
        if n == 0:
            memory = sum(saved.values()) + sum(2 * p.nbytes for p in net.parameters()) + sum(
                value.nbytes for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value))
        before, now = now, coming
    costs = costs.of(job["count"])

    def report(begin, end):
        parts = {"mean": slice(begin, end), "recent": slice(max(end - 100, 0), end)}
        loss, other = ({key: sum(values[part]) / len(values[part]) for key, part in parts.items()}
                       for values in (losses, beside))
        return {"loss": loss, "accuracy": other} if classes else {"loss": {**loss, "last_frame": other}}

    after = {"after": report(job["learn"], job["count"])} if job["learn"] < job["count"] else {}
    return {"learned": report(0, job["learn"]), **after, "memory_bytes": memory, **costs}


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    serve(learn)
