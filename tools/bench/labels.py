"""`millrace bench labels`: whether what is taught stays learned, on a real street and film whose states take turns."""

import json
import statistics
import tempfile
from pathlib import Path

import numpy

from events import DATA, seen, there_and_back
from measuring import call, one_by_one

WIDTH, HEIGHT, FPS, TURN = 128, 96, 10, 150  # TURN: frames
CLIPS = {"vtest.avi": 400, "tree.avi": 60, "Megamind.avi": 260}  # as many frames, played on and back
PARCEL = {"parcel of 18 px": 18, "parcel of 8 px": 8}
KINDS = ["day, night", "three scenes", *PARCEL]
# Labels that hold until the next one, clicked so many seconds late; or so many single frames per
# class.
TAUGHT = {"as it changes": 0, "2 s late": 2, "ten frames a class": None}
ARMS = {"by gradients": {"replay.kind": "none"}, "reservoir": {"replay.kind": "reservoir", "replay.share": 0.75}, "ridge": {}}


def clip(machine, name, folder):
    """[frames,H,W,3] of the file's beginning."""
    folder.mkdir()
    machine.frames(uri=f"file://{DATA}{name}", seed=0, width=WIDTH, height=HEIGHT, frames=CLIPS[name], folder=str(folder))
    return numpy.stack(list(seen(folder)))


def pictures(clips, kind, chance):
    """Each class for two turns to be taught and three to be judged: frames, classes and the number of classes."""
    classes, start, frames, truths = 3 if kind == "three scenes" else 2, chance.integers(1000), [], []
    for t in range(5 * classes * TURN):
        truth = t // TURN % classes
        frame = there_and_back(clips[truth if classes == 3 else 0], t + start).astype(float)
        if kind == "day, night" and truth:
            frame *= (0.30, 0.34, 0.42)
        elif kind in PARCEL and truth:
            frame[70:70 + PARCEL[kind], 20:20 + PARCEL[kind]] = (150, 90, 50)
        frames.append((frame + chance.normal(0, 2, frame.shape)).clip(0, 255).astype(numpy.uint8))
        truths.append(truth)
    return numpy.stack(frames), numpy.array(truths), classes


def write(folder, frames, truths, taught, chance):
    """Frames as pictures, and their labels."""
    folder.mkdir()
    for n, frame in enumerate(frames):
        (folder / f"{n:05d}.ppm").write_bytes(b"P6\n%d %d\n255\n" % (WIDTH, HEIGHT) + frame.tobytes())
    if taught is None:
        chosen = sorted(int(n) for each in set(truths) for n in chance.choice(numpy.flatnonzero(truths == each), 10, replace=False))
        rows = ["frame,class", *(f"{n},{truths[n]}" for n in chosen)]
    else:
        rows = ["time,class", *(f"{n / FPS + (taught if n else 0)},{truths[n]}" for n in range(0, len(truths), TURN))]
    (folder / "classes.csv").write_text("\n".join(rows) + "\n")
    return {"source.uri": f"images:{folder}/%05d.ppm", "source.fps": float(FPS), "task.labels": folder / "classes.csv"}


def nearest_mean(frames, truths, classes, seen):
    """Accuracy of the nearest class mean on thumbnails of 16x12."""
    thumbs = frames.reshape(len(frames), 12, HEIGHT // 12, 16, WIDTH // 16, 3).mean((2, 4)).reshape(len(frames), -1)
    means = numpy.stack([thumbs[:seen][truths[:seen] == each].mean(0) for each in range(classes)])
    return float((((thumbs[seen:, None] - means) ** 2).sum(2).argmin(1) == truths[seen:]).mean())


def turn(machine, clips, kind, how, seed, folder, arms=None):
    """By arm: accuracy in the turns to be judged, and what it cost."""
    chance = numpy.random.default_rng(seed)
    frames, truths, classes = pictures(clips, kind, chance)
    seen = 2 * classes * TURN
    taught = write(folder / "taught", frames[:seen], truths[:seen], TAUGHT[how], chance)
    tested = write(folder / "tested", frames[seen:], truths[seen:], 0, chance)
    found = {"nearest class mean": {"accuracy": nearest_mean(frames, truths, classes, seen)}}
    for arm, settings in (arms or ARMS).items():
        weights, report = folder / "weights.safetensors", folder / "report.json"
        learned = machine.run({**taught, "task.kind": "label", "task.loss": "cross-entropy", "model.seed": seed,
                               "pipeline.schedule": "pb", "output.weights": weights, **settings}, seen)
        call(machine.millrace, "evaluate", weights, tested["source.uri"], "--report", report, "--set", f"source.fps={FPS}.0",
             "--set", f"task.labels={tested['task.labels']}")
        found[arm] = {"accuracy": json.loads(report.read_text())["accuracy"]["mean"],
                      "remembered_bytes": learned.get("replay", {}).get("bytes", 0),
                      "ms_a_frame": 1e3 * learned["run"]["duration_s"] / seen}
    return found


def least(rows):
    """Each arm's least accuracy."""
    found = {}
    for row in rows:
        found[row["arm"]] = min(row["accuracy"], found.get(row["arm"], 1.0))
    return found


def labels(machine, options):
    seeds = 1 if options.quick else 3
    kinds, ways = (KINDS[:1], list(TAUGHT)[:1]) if options.quick else (KINDS, list(TAUGHT))
    jobs = [(kind, how, seed) for kind in kinds for how in ways for seed in range(seeds)]
    arms = []
    with tempfile.TemporaryDirectory() as folder:
        clips = [clip(machine, name, Path(folder, name)) for name in list(CLIPS)[:1 if options.quick else 3]]
        for kind, how, seed in one_by_one("labels", jobs):
            found = turn(machine, clips, kind, how, seed, Path(tempfile.mkdtemp(dir=folder)))
            arms += [{"arm": arm, "kind": kind, "taught": how, "seed": seed, **figures} for arm, figures in found.items()]
    rows = [{"what": kind, "taught": how, **least(each for each in arms if (each["kind"], each["taught"]) == (kind, how))}
            for kind in kinds for how in ways]
    costs = [{"arm": name, **{key: statistics.median(arm[key] for arm in arms if arm["arm"] == name)
                              for key in ("remembered_bytes", "ms_a_frame")}} for name in ARMS]
    return {"turn": TURN, "seeds": seeds, "rows": rows, "costs": costs, "arms": arms, "threads": 2}
