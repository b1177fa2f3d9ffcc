"""Millrace: a network learns from a stream, frame by frame, its stages in parallel.

    for frame, prediction, novelty in millrace.watch("clip.mp4"):
        ...

    trainer = millrace.Trainer(net, schedule="partime", stages=2, optimizer={"kind": "sgd", "lr": 0.1})
    for result in trainer.run(frames):
        print(result.index, result.loss)
    net.load_state_dict(trainer.state_dict())
"""

import importlib
import os
import sys

from millrace._program import wrong_torch

if _wrong := wrong_torch():
    if sys.argv[0] == "-m":  # python -m millrace: a command, whose error is a line
        sys.exit(f"millrace: error: {_wrong}")
    raise ImportError(_wrong)
os.environ.setdefault("MILLRACE_PYTHON", sys.executable)  # which a wheel decodes files with

importlib.import_module("torch")  # loads LibTorch for the extension module

from millrace._error import Error  # noqa: E402
from millrace._export import Exported, export  # noqa: E402
from millrace._stream import Result  # noqa: E402
from millrace.schedule import Plan, Schedule, Simulation, plan, schedules  # noqa: E402
from millrace.trainer import Trainer, watch  # noqa: E402

__all__ = ["Error", "Exported", "Plan", "Result", "Schedule", "Simulation", "Trainer", "export", "plan",
           "schedules", "watch"]
