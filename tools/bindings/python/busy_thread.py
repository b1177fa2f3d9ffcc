"""Does Python's lock hold the engine up? Frames a second, with Python's other threads idle and with one that never rests.

    PYTHONPATH=build/release/python .venv/bin/python -P tools/bindings/python/busy_thread.py build/release/millrace

The program learns from the same number of frames of the same size in the same network. Arms take turns; each tells its best
round, since a busy machine only ever makes a round slower. A core must be left for the thread that never rests.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading

import torch

import millrace

FRAMES, ROUNDS = 400, 7
NETWORK = {"source": {"width": 64, "height": 48}, "model": {"layers": 4, "features": 32, "kernel": 3},
           "pipeline": {"stages": 1}}


def package(busy):
    frames = [torch.rand(3, 48, 64) for _ in range(FRAMES)]
    trainer = millrace.Trainer(NETWORK)
    over = threading.Event()

    def work():
        while not over.is_set():
            sum(range(1000))

    thread = threading.Thread(target=work)
    if busy:
        thread.start()
    for _ in trainer.run(frames):
        pass
    over.set()
    if busy:
        thread.join()
    return 1e3 / trainer.report()["timing_ms"]["step_p50"]


def program(path):
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        settings = [f"{table}.{key}={value}" for table, keys in NETWORK.items() for key, value in keys.items()]
        subprocess.run([path, "run", "--quiet", "--frames", str(FRAMES), "--report", report, "--set", "source.uri=synth:shapes",
                        *(word for setting in settings for word in ("--set", setting))], check=True)
        with open(report, encoding="utf-8") as file:
            return 1e3 / json.load(file)["timing_ms"]["step_p50"]


def main():
    arms = {"program": lambda: program(sys.argv[1]), "package": lambda: package(False),
            "package, busy thread": lambda: package(True)}
    best = dict.fromkeys(arms, 0.0)
    for _ in range(ROUNDS):
        for name, arm in arms.items():
            best[name] = max(best[name], arm())
    for name, rate in best.items():
        print(f"{name:22} {rate:8.1f} frames a second, {100 * rate / best['program'] - 100:+.1f} %")


main()
