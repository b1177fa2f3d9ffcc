"""A PyTorch network in River's progressive evaluation: pip install river."""

import millrace
import torch
from river import base, datasets, evaluate, metrics
from torch import nn


class Net(millrace.Trainer, base.Classifier):
    """The Trainer has learn_one(), predict_one() and predict_proba_one()."""


torch.manual_seed(0)
net = nn.Sequential(nn.Flatten(), nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, 2))
model = Net(net, schedule="sequential", stages=1, task={"loss": "cross-entropy"}, optimizer={"kind": "adam", "lr": 1e-2})
print(evaluate.progressive_val_score(datasets.Phishing(), model, metrics.Accuracy()))
