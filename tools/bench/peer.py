"""A rival in `millrace bench peers`, in a process of its own: the argument names it.

Answers each line of JSON with another. {"path": a video}: the figure of each frame and its place, or none, in "figures", and
what they cost, from the file to the figure.
{"path": a folder of PPMs, "classes", "learn"}: the "accuracy" after the first `learn` frames, whose classes were told.
"""

import json
import sys
from pathlib import Path

import numpy

import events
from measuring import Costs

CELLS = 24, 32  # of 4 x 4 pixels


class Mog2:
    """OpenCV's background subtraction: the share of foreground."""

    begin = 100

    def __init__(self):
        self.model = events.mog2()

    def see(self, frame):
        return float((self.model.apply(frame) > 0).mean()), None


class Padim:
    """A Gaussian per patch (Defard et al., arXiv 2011.08785) over 16 random features of a fixed random network, since weights of
    a trained one are not to be had; fitted to the first frames. The largest Mahalanobis distance, and where."""

    begin, features = events.JUDGED, 16

    def __init__(self):
        import torch
        from torch import nn
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.torch = torch
        self.net = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, self.features, 3, 2, 1), nn.AvgPool2d(3, 1, 1))
        for layer in (self.net[0], self.net[2]):
            nn.init.kaiming_normal_(layer.weight)
        self.count, self.whiten = 0, None
        self.sum, self.products = (torch.zeros(*CELLS, *size, dtype=torch.double) for size in ((16,), (16, 16)))

    def fit(self):
        torch, mean = self.torch, self.sum / self.count
        spread = self.products / self.count - mean[..., :, None] * mean[..., None, :]
        level = 0.01 * spread.diagonal(dim1=-2, dim2=-1).mean()  # keeps the inverse finite
        self.mean = mean.float()
        self.whiten = torch.linalg.inv(torch.linalg.cholesky(spread + level * torch.eye(self.features))).float()

    def see(self, frame):
        torch = self.torch
        with torch.inference_mode():
            made = self.net(torch.from_numpy(frame).permute(2, 0, 1)[None].float() / 255)[0].permute(1, 2, 0)
            if self.count < self.begin:
                self.count += 1
                self.sum += made
                self.products += made[..., :, None] * made[..., None, :]
                return 0.0, None
            if self.whiten is None:
                self.fit()
            off = (self.whiten @ (made - self.mean)[..., None])[..., 0].square().sum(-1)
            row, column = divmod(int(off.argmax()), CELLS[1])
            return float(off.max().sqrt()), (4 * column + 2, 4 * row + 2)


class River:
    """A half-space forest over a thumbnail's values; for classes softmax regression over the same."""

    begin = 100

    def __init__(self):
        from river import anomaly, linear_model, preprocessing
        self.forest = anomaly.HalfSpaceTrees(seed=1)
        self.classes = preprocessing.StandardScaler() | linear_model.SoftmaxRegression()

    def features(self, frame):
        return dict(enumerate((frame.reshape(12, 8, 16, 8, 3).mean((1, 3)).ravel() / 255).tolist()))

    def see(self, frame):
        x = self.features(frame)
        score = self.forest.score_one(x)
        self.forest.learn_one(x)
        return score, None

    def label(self, frame, truth):
        """The class it answers, once it has learned the true one, if that is known."""
        x = self.features(frame)
        if truth is not None:
            self.classes.learn_one(x, truth)
        return self.classes.predict_one(x)


def main():
    rival = {"MOG2": Mog2, "PaDiM-like": Padim, "River": River}[sys.argv[1]]
    for line in sys.stdin:
        job, path, model = json.loads(line), None, rival()
        path = Path(job["path"])
        if "classes" in job:
            frames = [numpy.frombuffer(file.read_bytes()[-96 * 128 * 3:], numpy.uint8).reshape(96, 128, 3)
                      for file in sorted(path.glob("**/*.ppm"))]
            told, asked = frames[:job["learn"]], frames[job["learn"]:]
            for frame, truth in zip(told, job["classes"]):
                model.label(frame, truth)
            answers = [model.label(frame, None) == truth for frame, truth in zip(asked, job["classes"][job["learn"]:])]
            print(json.dumps({"accuracy": sum(answers) / len(answers)}), flush=True)
            continue
        costs = Costs()
        figures = [model.see(frame) for frame in events.seen(path)]
        print(json.dumps({"figures": figures, **costs.of(len(figures))}), flush=True)


if __name__ == "__main__":
    main()
