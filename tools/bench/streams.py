"""`millrace bench streams`: how well each rule learns from a stream, against PyTorch's plain loop."""

import contextlib
import itertools
import math
import os
import queue
import statistics
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from measuring import HERE, Asked, Failure, progress, toml

WIDTH, HEIGHT, HELD = 48, 36, 101  # HELD: frames after training; the first one's target was trained on
# {next}: the end of training, so that an unseen scene follows.
STREAMS = {"street": "file:///usr/share/doc/opencv-doc/examples/data/vtest.avi",
           "shapes": "synth:shapes?scenes=2&switch={next}",
           "turns": "synth:shapes?scenes=4&switch=25",
           "drift": "synth:shapes?scenes=4&switch=4&order=random&drift=0.6"}
LABELLED = ("turns", "drift")
RATES = {"adam": (3e-4, 1e-3), "rmsprop": (3e-4, 1e-3), "sgd": (0.03, 0.1)}

BLOCKS = [{"type": "residual", "kernel": 3}] * 6
CHANGES = [{"type": "conv", "out": 16, "kernel": 3}, {"type": "relu"}, *BLOCKS,
           {"type": "conv", "out": 3, "kernel": 3, "init": "zero"}, {"type": "multiply", "slope": 0.25}]
CLASSES = [{"type": "conv", "out": 16, "kernel": 3}, {"type": "relu"}, {"type": "maxpool", "kernel": 2}, *BLOCKS,
           {"type": "avgpool", "kernel": 6}, {"type": "flatten"}, {"type": "linear", "out": 4}]


def cut(layers, stages):
    """Gives each stage as many of the eight layers with weights."""
    learned = [place for place, layer in enumerate(layers) if layer["type"] in ("conv", "residual", "linear")]
    return learned[::len(learned) // stages][1:]


def warmup(labels, every):
    """Updates to warm up for: the program's default, or fewer with groups."""
    return 0 if labels else 50 // every


def arms_of(machine, most):
    """The first is the reference for the others' memory and gain. Those of the group "gradients" are for classes alone:
    what the schedules do without the head that is solved in closed form; optimizers concern pictures alone."""
    def arm(group, schedule="sequential", stages=1, optimizer="adam", every=1, settings=None):
        name = f"{schedule} x{stages}" if group != "PyTorch" else "PyTorch's loop"
        name += f", {optimizer}" if optimizer != "adam" else ""
        name += f", every {every}" if every > 1 else ""
        name += "".join(f", {key.partition('.')[2].replace('_', ' ')}" for key in settings or {})
        return {"arm": name, "group": group, "schedule": schedule, "stages": stages, "optimizer": optimizer, "every": every,
                "settings": settings or {}}

    arms = [arm("schedules")]
    for entry in machine.schedules():
        if entry["flushes"] or entry["name"] == "sequential":
            continue
        for stages in (1, 2, 4, 8):
            group = max(4, stages) if entry["minibatches"] else 1
            if stages > 1 or group > 1:  # otherwise as above
                arms.append(arm("schedules", entry["name"], stages, every=group))
            if stages > 1 and entry["vertical_sync"]:
                arms.append(arm("schedules", entry["name"], stages, settings={"pipeline.vertical_sync": "true"}))
    for schedule, stages in (("sequential", 1), ("partime", 4)):
        for optimizer in ("adam", "rmsprop", "sgd"):
            if optimizer != "adam":  # otherwise as above
                arms.append(arm("optimizers", schedule, stages, optimizer))
            arms.append(arm("optimizers", schedule, stages, optimizer, settings={"optimizer.orthogonal": 0.9}))
    arms += [arm("optimizers", "gpipe", every=every) for every in (4, 16)]
    arms += [{**arm("gradients", schedule, stages, settings={"replay.kind": "none"}), "arm": f"{schedule} x{stages}, by gradients"}
             for schedule, stages in (("sequential", 1), ("partime", 4), ("pb", 4))]
    arms += [arm("PyTorch", every=every) for every in (1, 2, 4, 8)] + [arm("PyTorch", optimizer="rmsprop")]
    return [each for each in arms if not most or each["stages"] <= most]


class Stream:
    """A seed's pictures and classes in a folder, and the network's initial weights."""

    def __init__(self, machine, name, seed, frames, folder):
        self.machine, self.name, self.frames, self.seed, self.folder = machine, name, frames, seed, folder
        self.labels = name in LABELLED
        self.layers = CLASSES if self.labels else CHANGES
        folder.mkdir()
        classes = machine.frames(uri=STREAMS[name].format(next=frames + 1), seed=seed, width=WIDTH, height=HEIGHT,
                                 frames=frames + HELD + 1, folder=str(folder))
        self.classes = classes if self.labels else None
        if self.labels:
            (folder / "classes.csv").write_text("frame,class\n" + "".join(f"{n},{c}\n" for n, c in enumerate(classes)))
        self.start = folder / "start.safetensors"
        self.run({"optimizer.lr": 0, "output.weights": self.start, "replay.kind": "none"}, 1)

    def run(self, settings, frames, launcher=()):
        """The report of a run on these pictures, by default with one stage."""
        task = ({"task.kind": "label", "task.loss": "cross-entropy", "task.labels": self.folder / "classes.csv", "replay.kind": "ridge"}
                if self.labels else {"task.kind": "next-frame"})
        settings = {"source.uri": f"images:{self.folder}/%05d.ppm", "source.width": WIDTH, "source.height": HEIGHT, **task,
                    "model.preset": "layers", "model.layer": toml(self.layers), "model.seed": self.seed,
                    "pipeline.schedule": "sequential", "pipeline.stages": 1, **settings}
        return self.machine.run(settings, frames, launcher)

    def errors(self, report):
        """(mean, last 100, the trivial predictor's of either): squared errors, or shares of wrong classes."""
        if self.labels:
            hits, rival = report["accuracy"], report["accuracy"].get("majority", {})
            return tuple(1 - each.get(part, 0) for each in (hits, rival) for part in ("mean", "recent"))
        rival = report["loss"]["last_frame"]
        return tuple(1.0 if each[part] is None else each[part]  # null: the largest possible square
                     for each in (report["loss"], rival) for part in ("mean", "recent"))


class Learner:
    """Runs one arm per core at a time; PyTorch's in a Python process that stays."""

    def __init__(self, python):
        self.cores = queue.Queue()
        for core in os.sched_getaffinity(0):
            launcher = ("taskset", "-c", str(core))
            self.cores.put((launcher, Asked(*launcher, python, HERE / "pytorch_stream.py")))
        self.pool = ThreadPoolExecutor(self.cores.qsize())

    def close(self):
        self.pool.shutdown(cancel_futures=True)
        while not self.cores.empty():
            self.cores.get()[1].close()

    def all(self, text, work, jobs):
        done = itertools.count(1)

        def run(job):
            core = self.cores.get()
            try:
                return work(*core, *job)
            finally:
                self.cores.put(core)
                progress(f"{text}: {next(done)} of {len(jobs)} runs")
        return list(self.pool.map(run, jobs))

    def learn(self, launcher, other, stream, arm, rate):
        """A run's report and weights; for PyTorch also the results after training."""
        if arm["group"] == "PyTorch":
            job = {"path": str(stream.folder), "weights": str(stream.start), "layers": stream.layers,
                   "classes": stream.classes, "learn": stream.frames, "count": stream.frames + HELD,
                   "optimizer": arm["optimizer"], "lr": rate, "every": arm["every"], "warmup": warmup(stream.labels, arm["every"])}
            return other.ask(**job)
        weights = stream.folder / f"{arm['arm']} {rate}.safetensors"
        learned = stream.run({
            "model.weights": stream.start, "output.weights": weights, "pipeline.schedule": arm["schedule"], "pipeline.stages": arm["stages"],
            "pipeline.cut": cut(stream.layers, arm["stages"]), "pipeline.microbatches": arm["every"], **arm["settings"],
            "optimizer.kind": arm["optimizer"], "optimizer.lr": rate,
            "optimizer.warmup": warmup(stream.labels, arm["every"])}, stream.frames, launcher)
        return {"learned": learned, "weights": weights,
                "memory_bytes": sum(learned["memory_bytes"]["total"]) + learned.get("replay", {}).get("bytes", 0)}

    def figures(self, launcher, _, stream, run):
        after = run.get("after") or stream.run({"model.weights": run["weights"], "model.learn": "false"},
                                               stream.frames + HELD, launcher)
        error, last, rival, rival_last = stream.errors(run["learned"])
        _, held, _, rival_held = stream.errors(after)
        return {"error": error, "last_100": last, "out_of_stream": held, "memory_bytes": run["memory_bytes"],
                "rival": {"error": rival, "last_100": rival_last, "out_of_stream": rival_held}}


def gain(labels, one, error):
    """In percentage points of accuracy, or in decibels of signal-to-noise ratio."""
    return 100 * (one - error) if labels else 10 * math.log10(max(one, 1e-12) / max(error, 1e-12))


def over_seeds(values):
    return {"mean": statistics.fmean(values), "std": statistics.stdev(values) if len(values) > 1 else 0.0}


def on_stream(learner, streams, arms, rates):
    """Every arm at the best learning rate of its optimizer's grid, chosen on the first seed."""
    name, first = streams[0].name, streams[0]
    arms = [arm for arm in arms if arm["group"] != ("optimizers" if first.labels else "gradients")]
    jobs = [(first, arm, rate) for arm in arms  # no rate plays a part where the head is solved
            for rate in rates[arm["optimizer"]][:1 if first.labels and arm["group"] == "schedules" else None]]
    tried = list(zip(jobs, learner.all(f"{name}, rates", learner.learn, jobs)))
    best = [min((found for found in tried if found[0][1] is arm), key=lambda found: first.errors(found[1]["learned"])[0])
            for arm in arms]
    jobs = [(stream, *job[1:]) for job, _ in best for stream in streams[1:]]
    more = iter(learner.all(f"{name}, seeds", learner.learn, jobs))
    runs = [(stream, run if stream is first else next(more)) for _, run in best for stream in streams]
    found = iter(learner.all(f"{name}, after", learner.figures, runs))
    rows, one = [], None
    for arm, (job, _) in zip(arms, best):
        seeds = [next(found) for _ in streams]
        one = one or seeds
        gains = over_seeds([gain(first.labels, a["error"], b["error"]) for a, b in zip(one, seeds)])
        rows.append({**arm, "stream": name, "rate": job[2],
                     **{key: over_seeds([each[key] for each in seeds]) for key in ("error", "last_100", "out_of_stream")},
                     "memory_bytes": seeds[0]["memory_bytes"], "gain": gains,
                     # Ferret (arXiv 2503.12053): log(exp(gain) / (memory / the reference's memory)).
                     "ferret": gains["mean"] - math.log(seeds[0]["memory_bytes"] / one[0]["memory_bytes"])})
    rival = {key: statistics.fmean(each["rival"][key] for each in one) for key in one[0]["rival"]}
    return {"stream": name, "labels": first.labels, "rival": rival}, rows


def streams(machine, options):
    frames, seeds = options.frames or 480, 1 if options.quick else 3
    arms = arms_of(machine, options.stages)
    arms = [arm for arm in arms if arm is arms[0] or options.arms in arm["arm"]]
    if len(arms) == 1 and options.arms not in arms[0]["arm"]:
        raise Failure(f'--arms: no arm has "{options.arms}" in its name', 2)
    rates = {kind: grid[1:2] if options.quick else grid for kind, grid in RATES.items()}
    results = {"frames": frames, "held": HELD - 1, "width": WIDTH, "height": HEIGHT, "seeds": seeds, "rates": rates,
               "streams": [], "arms": [], "threads": 1}
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(
            Learner(options.pytorch or sys.executable)) as learner:
        for name in options.streams or STREAMS:
            made = [Stream(machine, name, seed, frames, Path(folder, f"{name}-{seed}")) for seed in range(seeds)]
            stream, rows = on_stream(learner, made, arms, rates)
            results["streams"].append({**stream, "uri": STREAMS[name].format(next=frames + 1)})
            results["arms"] += rows
    progress("")
    return results
