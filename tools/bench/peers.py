"""`millrace bench peers`: one stream through Millrace, PyTorch's loop, River, MOG2 and a PaDiM-like rule: what each learns, finds,
answers, and costs."""

import contextlib
import importlib.util
import math
import resource
import statistics
import sys
import tempfile
from pathlib import Path

import numpy

import events
import labels
from measuring import HERE, Asked, OtherLoad, median, one_by_one

KINDS = ["obj8", "removed", "walker", "lightsoff", "frozen"]
LATE = 20  # frames after which a label is clicked: "2 s late"
FITTED = {"PaDiM-like": events.JUDGED}  # frames that it learns from; its limit comes from the next ones
LOOP, LAZY = "PyTorch's loop", "laziest answer"
# The default network for the next frame, and the one that bench labels teaches.
NEXT = [{"type": "conv", "out": 32, "kernel": 3}, {"type": "relu"}, *[{"type": "residual", "kernel": 3}] * 2,
        {"type": "conv", "out": 3, "kernel": 3}, {"type": "multiply", "slope": 0.25}]
LABEL = [*[{"type": "conv", "out": 16, "kernel": 3, "stride": 2}, {"type": "relu"}] * 2, {"type": "flatten"}]


def rivals_here(python):
    rivals = {LOOP: Asked(python, HERE / "pytorch_stream.py"), "MOG2": Asked(python, HERE / "peer.py", "MOG2"),
              "PaDiM-like": Asked(python, HERE / "peer.py", "PaDiM-like")}
    if importlib.util.find_spec("river"):
        return {**rivals, "River": Asked(python, HERE / "peer.py", "River")}
    print("River is left out: pip install river", file=sys.stderr)
    return rivals


def pytorch(machine, settings, folder, **job):
    """A job for pytorch_stream.py, from the weights that the program starts with."""
    start = folder / "start.safetensors"
    machine.run({**settings, "optimizer.lr": 0, "output.weights": start}, 1)
    return {"weights": str(start), "optimizer": "adam", "lr": 1e-3, "every": 1, **job}


def ours(machine, path, frames):
    """Alarms, and what it learned and cost, as a rival answers."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    report, alarms, _ = events.ours(machine, path, frames)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    work = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return alarms, {"learned": report, "ms": 1e3 * report["run"]["duration_s"] / frames, "core_ms": 1e3 * work / frames,
                    "peak_bytes": report["process"]["peak_bytes"]}


def watched(machine, rivals, kind, place, trial, folder):
    """A row an arm: what it learned of a stream, found in it, and cost."""
    scene, path, frames = events.Scene(kind, place, trial), folder / "stream.mp4", events.FRAMES
    events.write(scene, frames, "crf 23", path)
    found = {"Millrace": ours(machine, path, frames)}
    for arm, rival in rivals.items():
        if arm != LOOP:
            answer = rival.ask(path=str(path))
            found[arm] = events.alarms(answer["figures"], events.limit_of(answer["figures"], FITTED.get(arm, 100))), answer
        elif kind == "none":
            job = pytorch(machine, {"source.uri": path.as_uri()}, folder, layers=NEXT, warmup=50)
            found[arm] = None, rival.ask(path=str(path), classes=None, learn=frames - 1, count=frames - 1, **job)
    path.unlink()
    rows = []
    for arm, (alarms, answer) in found.items():
        row = {"arm": arm, "kind": kind, "place": place, "trial": trial, **{key: answer[key] for key in ("ms", "core_ms", "peak_bytes")}}
        if "learned" in answer:
            loss = answer["learned"]["loss"]
            row["times_better"] = loss["last_frame"]["mean"] / loss["mean"]
        if alarms is not None:
            row |= events.judged(scene, alarms) if kind != "none" else {"early": sum(alarm[0] >= events.JUDGED for alarm in alarms)}
        rows.append(row)
    return rows


def taught(machine, rivals, clips, kind, seed, folder):
    """A row an arm: accuracy after labels that were 2 s late."""
    found = labels.turn(machine, clips, kind, "2 s late", seed, folder, {"Millrace": {}})
    _, truths, classes = labels.pictures(clips, kind, numpy.random.default_rng(seed))
    learn = 2 * classes * labels.TURN
    told = [int(truths[max(n - LATE, 0) if n < learn else n]) for n in range(len(truths))]
    job = {"path": str(folder), "classes": told, "learn": learn}
    settings = {"source.uri": f"images:{folder}/taught/%05d.ppm", "source.fps": float(labels.FPS), "replay.kind": "none",
                "task.kind": "label", "task.labels": folder / "taught/classes.csv", "task.loss": "cross-entropy",
                "model.preset": "layers", "model.layer": labels.LAYERS.format(classes), "model.seed": seed}
    loop = pytorch(machine, settings, folder, layers=[*LABEL, {"type": "linear", "out": classes}], count=len(told), warmup=0, **job)
    found[LOOP] = {"accuracy": rivals[LOOP].ask(**loop)["after"]["accuracy"]["mean"]}
    if "River" in rivals:
        found["River"] = rivals["River"].ask(**job)
    found[LAZY] = {"accuracy": 1 / classes}
    return [{"arm": arm, "kind": kind, "seed": seed, "accuracy": row["accuracy"]} for arm, row in found.items()]


def summed(arm, streams, answers):
    """A row of the page."""
    mine, row = [each for each in streams if each["arm"] == arm], {"arm": arm}
    for place in events.PLACES:
        here = [each for each in mine if each["place"] == place]
        planted = [each["delay"] is not None for each in here if "delay" in each]
        row[f"{place}_times"] = 1.0 if arm == LAZY else median([each["times_better"] for each in here if "times_better" in each])
        row[f"{place}_found"] = 0.0 if arm == LAZY else median([sum(planted) / len(planted)] if planted else [])
    heard = [each for each in mine if "early" in each]
    seconds = sum(events.FRAMES if each["kind"] == "none" else events.AT for each in heard) / events.FPS - 60 * len(heard)
    row["false"] = 600 * sum(each["early"] for each in heard) / seconds if heard else 0.0 if arm == LAZY else math.nan
    accuracies = [each["accuracy"] for each in answers if each["arm"] == arm]
    row["accuracy"] = statistics.fmean(accuracies) if accuracies else math.nan
    row |= {key: median([each[key] for each in mine]) for key in ("ms", "core_ms", "peak_bytes")}
    return {key: None if value != value else value for key, value in row.items()}


def peers(machine, options):
    events.opencv()
    rounds = 1 if options.quick else options.rounds
    jobs = [(kind, place, trial) for trial in range(rounds) for place in events.PLACES for kind in ["none", *KINDS]]
    kinds = labels.KINDS[:1] if options.quick else labels.KINDS
    jobs, others, streams, answers = jobs[:2] + jobs[6:8] if options.quick else jobs, OtherLoad(machine), [], []
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as open_rivals:
        rivals = rivals_here(options.pytorch or sys.executable)
        for rival in rivals.values():
            open_rivals.callback(rival.close)
        for job in one_by_one("streams", jobs):
            streams += watched(machine, rivals, *job, Path(folder))
        clips = [labels.clip(machine, name, Path(folder, name)) for name in list(labels.CLIPS)[:1 if options.quick else 3]]
        for kind, seed in one_by_one("labels", [(kind, seed) for kind in kinds for seed in range(rounds)]):
            answers += taught(machine, rivals, clips, kind, seed, Path(tempfile.mkdtemp(dir=folder)))
    names = ["Millrace", *rivals, LAZY]
    found = [events.summed(streams, kind, place, [arm for arm in names if arm not in (LOOP, LAZY)]) for place in events.PLACES for kind in dict.fromkeys(job[0] for job in jobs)
             if kind != "none"]
    by_kind = [{"what": kind, **{arm: min(each["accuracy"] for each in answers if (each["arm"], each["kind"]) == (arm, kind))
                                 for arm in dict.fromkeys(each["arm"] for each in answers)}} for kind in kinds]
    return {"rounds": rounds, "frames": events.FRAMES, "kinds": KINDS, "rows": [summed(arm, streams, answers) for arm in names],
            "found": found, "labels": by_kind, "others_cores": others.cores(), "arms": streams, "answers": answers,
            "threads": 2}
