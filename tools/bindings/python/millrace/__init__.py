"""Millrace: a network learns from a stream, frame by frame, its stages in parallel.

    for frame, prediction, novelty in millrace.watch("clip.mp4"):
        ...

    trainer = millrace.Trainer(net, schedule="partime", stages=2, optimizer={"kind": "sgd", "lr": 0.1})
    for result in trainer.run(frames):
        print(result.index, result.loss)
    net.load_state_dict(trainer.state_dict())
"""

import importlib.util

import torch  # noqa: F401  loads LibTorch for the extension module

if importlib.util.find_spec("millrace._millrace") is None:  # a wheel has two
    try:
        globals()["_millrace"] = importlib.import_module("millrace.gstreamer._millrace")
    except ImportError:  # no GStreamer on this system
        globals()["_millrace"] = importlib.import_module("millrace.plain._millrace")

from millrace._error import Error
from millrace._export import Exported, export
from millrace._stream import Result
from millrace.schedule import Plan, Schedule, Simulation, plan, schedules
from millrace.trainer import Trainer, watch

__all__ = ["Error", "Exported", "Plan", "Result", "Schedule", "Simulation", "Trainer", "export", "plan",
           "schedules", "watch"]
