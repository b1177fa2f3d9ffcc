"""Scene A changes to scene B and back: a network that goes on learning, the same frozen after A, and a copy of the frame before.
drift.py [FRAMES PER SCENE] [CHART.png]"""

import itertools
import sys

import matplotlib.pyplot as plt
import millrace
import torch
from torch import nn

SCENE = int(sys.argv[1]) if len(sys.argv) > 1 else 1000


def trainer(scenes, **keys):
    source = {"uri": f"synth:shapes?speed=3&scenes=2&switch={SCENE}&frames={scenes * SCENE}", "width": 32, "height": 32}
    torch.manual_seed(0)
    layers = [nn.Conv2d(6, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, 3, 5, padding=2)]
    return millrace.Trainer(nn.Sequential(*layers), task="next-frame", source=source, stages=2, cut=[2], **keys)


def mean(losses, begin):
    return sum(losses[begin:begin + 20]) / 20


frozen = trainer(3, learn=False)
frozen.load_state_dict(trainer(1).partial_fit().state_dict())
learning = list(trainer(3).run())
curves = {"goes on learning": [one.loss for one in learning], "frozen after A": [one.loss for one in frozen.run()],
          "frame before": [((now.picture - then.picture) ** 2).mean().item() for then, now in itertools.pairwise(learning)]}
print("squared error  ", *(f"{label:>18}" for label in curves))
for name, begin in (("A, last 20", SCENE - 25), ("B, first 20", SCENE), ("B, last 20", 2 * SCENE - 25), ("A, first 20", 2 * SCENE),
                    ("A, last 20", 3 * SCENE - 25)):
    print(f"{name:<15}", *(f"{mean(losses, begin):18.4f}" for losses in curves.values()))
plt.figure(figsize=(9, 4), layout="constrained")
for (label, losses), colour in zip(curves.items(), ("#0072B2", "#D55E00", "#009E73")):
    begin = SCENE if "frozen" in label else 0
    points = torch.tensor(losses)[begin:].unfold(0, 20, 20).mean(1)
    plt.semilogy([begin + 20 * i + 10 for i in range(len(points))], points, label=label, color=colour)
plt.title("Scenes A, B and A again: error of the predicted next frame", loc="left", weight="bold")
plt.xlabel("frame")
plt.ylabel("mean squared error")
plt.legend(frameon=False)
plt.savefig(sys.argv[2] if len(sys.argv) > 2 else "drift.png", dpi=120)
