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
        from millrace.gstreamer import _millrace
    except ImportError:  # no GStreamer on this system
        from millrace.plain import _millrace  # noqa: F401

from millrace._error import Error
from millrace._export import Exported, export
from millrace.schedule import Plan, Schedule, Simulation, plan, schedules
from millrace.trainer import Result, Trainer, watch

__all__ = ["Error", "Exported", "Plan", "Result", "Schedule", "Simulation", "Trainer", "export", "plan", "schedules", "watch"]
