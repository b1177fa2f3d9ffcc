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
OURS, LOOP, LAZY = "Millrace", "PyTorch's loop", "laziest answer"
COSTS = "ms", "core_ms", "peak_bytes"
# The default network for the next frame.
NEXT = [{"type": "conv", "out": 32, "kernel": 3}, {"type": "relu"}, *[{"type": "residual", "kernel": 3}] * 2,
        {"type": "conv", "out": 3, "kernel": 3}, {"type": "multiply", "slope": 0.25}]
ADAM = {"optimizer": "adam", "lr": 1e-3, "every": 1}


def ours(machine, path):
    """Alarms, and what it learned and cost, as a rival answers."""
    begin = resource.getrusage(resource.RUSAGE_CHILDREN)
    report, alarms = events.ours(machine, path, events.FRAMES)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    costs = report["run"]["duration_s"], end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime
    return alarms, {"learned": report, "peak_bytes": report["process"]["peak_bytes"],
                    **{name: 1e3 * seconds / events.FRAMES for name, seconds in zip(COSTS, costs)}}


def watched(machine, rivals, kind, place, trial, folder, frames):
    """A row an arm: what it learned of a stream, found in it, and cost. PyTorch sees so many frames."""
    scene, path, start = events.Scene(kind, place, trial), folder / "stream.mp4", folder / "start.safetensors"
    events.write(scene, events.FRAMES, "crf 23", path)
    found = {OURS: ours(machine, path)}
    if kind == "none":
        machine.run({"source.uri": path.as_uri(), "optimizer.lr": 0, "output.weights": start}, 1)
        learn = {"learn": frames, "count": frames, "warmup": 50}
        found[LOOP] = None, rivals[LOOP].ask(path=str(path), weights=str(start), layers=NEXT, classes=None, **ADAM, **learn)
    for arm in rivals.keys() - {LOOP}:
        answer = rivals[arm].ask(path=str(path))
        limit = events.limit_of(answer["figures"], events.JUDGED if arm == "PaDiM-like" else 100)
        found[arm] = events.alarms(answer["figures"], limit), answer
    rows = []
    for arm, (alarms, answer) in found.items():
        rows.append({"arm": arm, "kind": kind, "place": place, "trial": trial, **{key: answer[key] for key in COSTS}})
        if "learned" in answer:
            loss = answer["learned"]["loss"]
            rows[-1]["times_better"] = loss["last_frame"]["mean"] / loss["mean"]
        if arm != LOOP:  # which has no rule for events
            early = {"early": sum(alarm[0] >= events.JUDGED for alarm in alarms)}
            rows[-1] |= early if kind == "none" else events.judged(scene, alarms)
    return rows


def classifier(classes):
    """The program's network for labels."""
    return [*[{"type": "conv", "out": 16, "kernel": 3, "stride": 2}, {"type": "relu"}] * 2, {"type": "flatten"},
            {"type": "linear", "out": classes}]


def taught(machine, rivals, clips, kind, seed, folder):
    """A row an arm: accuracy after labels that were 2 s late."""
    _, truths, classes = labels.pictures(clips, kind, numpy.random.default_rng(seed))
    learn = 2 * classes * labels.TURN
    told = [int(truths[max(n - LATE, 0) if n < learn else n]) for n in range(len(truths))]
    job = {"path": str(folder), "classes": told, "learn": learn}
    found = {OURS: labels.turn(machine, clips, kind, "2 s late", seed, folder, {OURS: {}})[OURS],
             LOOP: rivals[LOOP].ask(**job, weights="", layers=classifier(classes), count=len(told), warmup=0, **ADAM)["after"]["accuracy"],
             LAZY: {"mean": 1 / classes}}
    if "River" in rivals:
        found["River"] = rivals["River"].ask(**job)
    return [{"arm": arm, "kind": kind, "seed": seed, "accuracy": row.get("accuracy", row.get("mean"))}
            for arm, row in found.items()]


def summed(arm, streams, answers):
    """A row of the page."""
    def of(key, place=None, kinds=(*KINDS, "none")):
        return [each[key] for each in streams if key in each and each["arm"] == arm and each["kind"] in kinds
                and each["place"] in (place or each["place"])]

    row = {"arm": arm, **{key: median(of(key)) for key in COSTS}}
    for place in events.PLACES:
        delays = of("delay", place)
        row[f"{place}_times"] = median(of("times_better", place, ["none"]))
        row[f"{place}_found"] = sum(delay is not None for delay in delays) / len(delays) if delays else math.nan
    frames = (events.AT - events.JUDGED) * len(of("delay")) + (events.FRAMES - events.JUDGED) * len(of("early", kinds=["none"]))
    row["false"] = sum(of("early")) * 600 * events.FPS / frames if frames else math.nan
    accuracies = [each["accuracy"] for each in answers if each["arm"] == arm]
    row["accuracy"] = statistics.fmean(accuracies) if accuracies else math.nan
    if arm == LAZY:
        row |= {"street_times": 1.0, "yard_times": 1.0, "street_found": 0.0, "yard_found": 0.0, "false": 0.0}
    return {key: None if value != value else value for key, value in row.items()}


def peers(machine, options):
    events.opencv()
    rounds, kinds = (1, labels.KINDS[:1]) if options.quick else (options.rounds, labels.KINDS)
    jobs = [(kind, place, trial) for trial in range(rounds) for kind in ["none", *KINDS] for place in events.PLACES]
    jobs = [("none", "street", 0), ("obj8", "yard", 0)] if options.quick else jobs
    names = [OURS, LOOP, "MOG2", "PaDiM-like", *(["River"] if importlib.util.find_spec("river") else [])]
    if "River" not in names:
        print("River is left out: pip install river", file=sys.stderr)
    others, streams, answers, python = OtherLoad(machine), [], [], options.pytorch or sys.executable
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as running:
        rivals = {arm: Asked(python, HERE / "peer.py", arm) for arm in names[2:]}
        rivals[LOOP] = Asked(python, HERE / "pytorch_stream.py")
        for rival in rivals.values():
            running.callback(rival.close)
        for job in one_by_one("streams", jobs):
            streams += watched(machine, rivals, *job, Path(folder), 300 if options.quick else events.FRAMES - 1)
        clips = [labels.clip(machine, name, Path(folder, name)) for name in list(labels.CLIPS)[:1 if options.quick else 3]]
        for kind, seed in one_by_one("labels", [(kind, seed) for kind in kinds for seed in range(rounds)]):
            answers += taught(machine, rivals, clips, kind, seed, Path(tempfile.mkdtemp(dir=folder)))
    return {"rounds": rounds, "frames": events.FRAMES, "kinds": KINDS, "others_cores": others.cores(), "arms": streams,
            "answers": answers, "rows": [summed(arm, streams, answers) for arm in [*names, LAZY]],
            "found": [events.summed(streams, kind, place, [arm for arm in names if arm != LOOP]) for kind, place, trial in jobs
                      if kind != "none" and trial == 0],
            "labels": [{"what": kind, **labels.least(each for each in answers if each["kind"] == kind)} for kind in kinds],
            "threads": 2}
