"""A rival in `millrace bench peers`, in a process of its own: the argument names it.

Answers each line of JSON with another. {"path": a video}: the figure of each frame and its place, or none, in "figures", and what
they cost, from the file to the figure. {"path": a folder of PPMs, "classes", "learn"}: the "accuracy" after the first `learn`
frames, whose classes were told.
"""

import sys
from pathlib import Path

import events
from measuring import Costs, serve


def mog2(frames):
    """OpenCV's background subtraction: the share of foreground."""
    model = events.mog2()
    for frame in frames:
        yield float((model.apply(frame) > 0).mean()), None


def padim(frames):
    """A Gaussian per patch (Defard et al., arXiv 2011.08785) over 16 features of a fixed random network, since weights of a trained
    one are not to be had; fitted to the first frames. The largest Mahalanobis distance, and where."""
    import torch
    from torch import nn
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    net = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 16, 3, 2, 1), nn.AvgPool2d(3, 1, 1))
    for layer in net[::2]:
        nn.init.kaiming_normal_(layer.weight)
    usual = []
    for n, frame in enumerate(frames):
        made = net(torch.from_numpy(frame).permute(2, 0, 1)[None].float() / 255)[0].permute(1, 2, 0)
        if n < events.JUDGED:
            usual.append(made)
            yield 0.0, None
            continue
        if n == events.JUDGED:
            seen = torch.stack(usual)
            usual, mean = [], seen.mean(0)
            seen -= mean
            spread = torch.einsum("nijk,nijl->ijkl", seen, seen) / n
            level = 0.01 * spread.diagonal(dim1=-2, dim2=-1).mean()  # keeps the inverse finite
            whiten = torch.linalg.inv(torch.linalg.cholesky(spread + level * torch.eye(16)))
        off = (whiten @ (made - mean)[..., None]).square().sum((-2, -1))
        row, column = divmod(int(off.argmax()), off.size(1))
        yield float(off.max().sqrt()), (4 * column + 2, 4 * row + 2)


def thumbnail(frame):
    return dict(enumerate((frame.reshape(12, 8, 16, 8, 3).mean((1, 3)).ravel() / 255).tolist()))


def river(frames):
    """A half-space forest over a thumbnail's values."""
    from river import anomaly
    forest = anomaly.HalfSpaceTrees(seed=1)
    for x in map(thumbnail, frames):
        yield forest.score_one(x), None
        forest.learn_one(x)


def river_labels(frames, classes, learn):
    """Softmax regression over the same."""
    from river import linear_model, preprocessing
    model, right = preprocessing.StandardScaler() | linear_model.SoftmaxRegression(), []
    for n, (x, truth) in enumerate(zip(map(thumbnail, frames), classes, strict=True)):
        if n < learn:
            model.learn_one(x, truth)
        else:
            right.append(model.predict_one(x) == truth)
    return sum(right) / len(right)


def answer(job):
    frames, costs = events.seen(Path(job["path"])), Costs()
    if "classes" in job:
        return {"accuracy": river_labels(frames, job["classes"], job["learn"])}
    figures = list({"MOG2": mog2, "PaDiM-like": padim, "River": river}[sys.argv[1]](frames))
    return {"figures": figures, **costs.of(len(figures))}


if __name__ == "__main__":
    serve(answer)
