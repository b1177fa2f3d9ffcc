"""What `novelty` finds: planted events in a real stream, beside OpenCV's MOG2 and the difference of two frames.

    python3 tools/bench/events.py build/release/millrace [--set KEY=VALUE]...

Needs opencv-python-headless. Every judge sees the same frames. Each event is planted at three places of the stream, one a
run. Printed: area under the ROC curve of the score by frame, false alarms an hour, and the delay of the first alarm in
frames (the event's whole length: it was missed). All alarms follow one rule: a score's logarithm, 4 deviations above its
running mean.
"""

import argparse
import json
import math
import subprocess
import tempfile
from pathlib import Path

import cv2
import numpy as np

VIDEO = "/usr/share/doc/opencv-doc/examples/data/vtest.avi"
WIDTH, HEIGHT, FPS = 128, 96, 10
LENGTH, PLACES, SETTLING = 60, (900, 1200, 1500), 400


def street():
    """The video there, back and there again, so that nothing jumps."""
    capture, frames = cv2.VideoCapture(VIDEO), []
    while True:
        there, frame = capture.read()
        if not there:
            break
        frames.append(cv2.resize(frame, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA))
    return frames + frames[-2::-1] + frames[1:200]


def intruder(frame, n, _):
    x, y = 10 + int(1.5 * n), 55
    cv2.ellipse(frame, (x, y), (5, 13), 0, 0, 360, (40, 60, 160), -1)
    cv2.circle(frame, (x, y - 16), 4, (120, 150, 200), -1)
    return frame


def lights(frame, *_):
    return cv2.convertScaleAbs(frame, alpha=0.6)


def frozen(_, __, first):
    return first.copy()


def covered(frame, n, _):
    noise = np.random.default_rng(n).normal(0, 2, frame.shape)
    return np.clip(0.1 * cv2.blur(frame, (31, 31)) + 5 + noise, 0, 255).astype(np.uint8)


def moved(frame, *_):
    return cv2.warpAffine(frame, np.float32([[1, 0, 9], [0, 1, 6]]), (WIDTH, HEIGHT), borderMode=cv2.BORDER_REPLICATE)


def left_behind(frame, *_):
    cv2.rectangle(frame, (60, 70), (70, 78), (30, 30, 30), -1)
    return frame


EVENTS = {"intruder": intruder, "lights": lights, "frozen": frozen, "covered": covered, "moved": moved, "left behind": left_behind}


def planted(frames, plant, place):
    changed = [plant(frame.copy(), n, frames[place]) for n, frame in enumerate(frames[place:place + LENGTH])]
    return frames[:place] + changed + frames[place + LENGTH:]


def by_millrace(program, settings, frames, folder):
    """The log's deviation of each frame, and whether an event goes on."""
    writer = cv2.VideoWriter(str(folder / "planted.avi"), cv2.VideoWriter_fourcc(*"FFV1"), FPS, (WIDTH, HEIGHT))
    for frame in frames:
        writer.write(frame)
    writer.release()
    log = folder / "log.jsonl"
    log.unlink(missing_ok=True)
    options = [f"source.uri={folder}/planted.avi", f"output.log={log}", "output.log_every=1", *settings]
    options.append(f"output.report={folder}/report.json")
    subprocess.run([program, "run", "--quiet", *(word for option in options for word in ("--set", option))], check=True)
    # The log has the input's number: a frame that is predicted is the next one.
    later = json.loads((folder / "report.json").read_text())["task"]["kind"] == "next-frame"
    score, alarm = np.zeros(len(frames)), np.zeros(len(frames), bool)
    for line in map(json.loads, log.read_text().splitlines()):
        at = line["source_frame"] + later
        score[at], alarm[at] = line["deviation"], line["unexpected"]
    return score, alarm


def by_mog2(frames):
    judge = cv2.createBackgroundSubtractorMOG2(detectShadows=False)
    return np.array([np.mean(judge.apply(frame) > 0) for frame in frames])


def by_difference(frames):
    grey = [cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY).astype(float) for frame in frames]
    return np.array([0.0] + [np.mean(np.abs(b - a)) for a, b in zip(grey, grey[1:])])


def alarms(score, deviations=4.0, memory=1000, calm=25):
    """Whether an event goes on, by the rule of tools/app/outputs/novelty.cpp for one number a frame."""
    mean = variance = 0.0
    on, usual, marks = False, 0, []
    for n, value in enumerate(np.log(np.maximum(score, 1e-6))):
        spread = max(math.sqrt(variance), 0.05)
        if n >= 300 and value - mean > deviations * spread:
            on, usual = True, 0
        else:
            usual += 1
            on = on and usual < calm
        marks.append(on)
        share = 1 / min(max(n // 4, 1), memory)
        step = value - mean
        if n >= 300:
            step = min(max(step, -deviations * spread), deviations * spread)
        mean += share * step
        variance = (1 - share) * (variance + share * step * step)
    return np.array(marks)


def area(score, place):
    """Under the ROC curve: how often a frame of the event scores above one before or well after it."""
    quiet = np.r_[SETTLING:place, place + LENGTH + 100:len(score)]
    event, others = score[place:place + LENGTH], np.sort(score[quiet])
    below, upto = np.searchsorted(others, event, "left"), np.searchsorted(others, event, "right")
    return float(np.mean((below + upto) / 2) / len(others))


def figures(score, alarm, place):
    starts = np.flatnonzero(alarm[1:] & ~alarm[:-1]) + 1
    false = [n for n in starts if SETTLING <= n < place or n >= place + LENGTH + 100]
    hours = (len(score) - SETTLING - LENGTH - 100) / FPS / 3600
    found = np.flatnonzero(alarm[place:place + LENGTH])
    return area(score, place), len(false) / hours, float(found[0]) if len(found) else float(LENGTH)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--json", help="where to write the figures")
    arguments = parser.parse_args()
    frames, table = street(), {}
    with tempfile.TemporaryDirectory() as folder:
        for name, plant in EVENTS.items():
            rows = {"millrace": [], "MOG2": [], "difference": []}
            for place in PLACES:
                stream = planted(frames, plant, place)
                scores = {"MOG2": by_mog2(stream), "difference": by_difference(stream)}
                judged = {peer: (score, alarms(score)) for peer, score in scores.items()}
                judged["millrace"] = by_millrace(arguments.program, arguments.settings, stream, Path(folder))
                for judge, (score, alarm) in judged.items():
                    rows[judge].append(figures(score, alarm, place))
            table[name] = {judge: np.mean(row, axis=0).tolist() for judge, row in rows.items()}
            print(f"{name:12}", *(f"{judge} {a:.3f} {f:5.0f}/h {d:4.0f}" for judge, (a, f, d) in table[name].items()), sep="  ", flush=True)
    means = {judge: np.mean([row[judge] for row in table.values()], axis=0).tolist() for judge in ("millrace", "MOG2", "difference")}
    print(f"{'mean':12}", *(f"{judge} {a:.3f} {f:5.0f}/h {d:4.0f}" for judge, (a, f, d) in means.items()), sep="  ")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({**table, "mean": means}, indent=1) + "\n")


if __name__ == "__main__":
    main()
