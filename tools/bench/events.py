"""`millrace bench events`: what is found, where and how fast, of events planted in real footage; beside MOG2 and
frame difference on the same frames."""

import functools
import importlib.util
import math
import statistics
import subprocess
import tempfile
from pathlib import Path

import numpy

from measuring import Failure, one_by_one

DATA = "/usr/share/doc/opencv-doc/examples/data/"
WIDTH, HEIGHT, FPS, SCALE = 384, 288, 10, 3  # SCALE: pixels of a stream per pixel of the 128x96 that all arms see
FRAMES, AT, QUIET = 1300, 1000, 6000  # of a stream; before its event; of a stream without one
LEARNED, JUDGED = 900, 600  # first frames that the limits are taken from; alarms count as false from the second on
NEAR, SAME = 8, 10  # pixels of 128x96, frames
MINIMUM = 3  # pictures in a row that make an event, whose first frame is in the report
OBJECTS = {"obj5": 5, "obj8": 8, "obj12": 12}  # pixels of 128x96
PLACED = [*OBJECTS, "removed", "walker", "slow"]
WHOLE = ["lightsoff", "lightson", "dimmer", "covered", "moved", "bumped", "defocus", "frozen", "noise"]
SILENT = ["dawn", "cloud"]
PLACES = ["yard", "street"]
X264 = "-c:v libx264 -preset superfast -g 50 -crf "
ENCODERS = {"crf 18": X264 + "18", "crf 23": X264 + "23", "crf 28": X264 + "28", "crf 35": X264 + "35",
            "CBR": "-c:v libx264 -preset superfast -g 50 -b:v 300k -minrate 300k -maxrate 300k -bufsize 300k",
            "all-intra": "-c:v libx264 -preset superfast -g 1 -crf 23", "MJPEG": "-c:v mjpeg -q:v 4",
            "no noise": X264 + "23", "noise of sd 25": X264 + "23"}
NOISE = {"no noise": 0.0, "noise of sd 25": 25.0}
ARMS = ["Millrace", "longest stay", "MOG2, share", "MOG2, blob", "frame difference"]


def opencv():
    if importlib.util.find_spec("cv2") is None:
        raise Failure("bench events and peers need OpenCV: pip install opencv-python-headless", 2)
    import cv2
    return cv2


@functools.cache
def street():
    """[frames,H,W,3] of the clip, and the empty street."""
    video, frames = opencv().VideoCapture(DATA + "vtest.avi"), []
    while (read := video.read())[0]:
        frames.append(opencv().resize(read[1], (WIDTH, HEIGHT), interpolation=opencv().INTER_AREA))
    if not frames:
        raise Failure(f"{DATA}vtest.avi: can't be read; it is in Debian's opencv-doc")
    return numpy.stack(frames), numpy.median(frames[::5], 0).astype(numpy.uint8)


def there_and_back(frames, t):
    at = t % (2 * len(frames) - 2)
    return frames[min(at, 2 * len(frames) - 2 - at)]


@functools.cache
def calm():
    """How much each pixel changes over the clip."""
    return street()[0][::5].astype(numpy.float32).std(0).mean(2)


@functools.cache
def noises():
    """A pool that each picture takes a random window of: partly common to its three colours."""
    chance = numpy.random.default_rng(5)
    size = (HEIGHT + 16, WIDTH + 16)
    return [0.7 * (chance.standard_normal((*size, 3), numpy.float32) + chance.standard_normal((*size, 1), numpy.float32))
            for _ in range(24)]


class Scene:
    """One stream with its event, and where that is at a frame."""

    def __init__(self, kind, place, trial):
        self.kind, self.place = kind, place
        self.chance = chance = numpy.random.default_rng(1000 + trial)
        self.size = size = OBJECTS.get(kind, 12) * SCALE
        self.x, self.y = self.quiet_place()
        ground = street()[1][self.y:self.y + size, self.x:self.x + size].mean((0, 1))
        self.patch = self.thing(ground)
        self.start, self.path = int(chance.integers(1500)), 225 + int(chance.integers(12))
        self.person = numpy.zeros((42, 18, 3), numpy.uint8)
        self.person[:10], self.person[10:26], self.person[26:] = (120, 150, 190), (30, 30, 140), (60, 40, 30)

    def quiet_place(self):
        size = self.size
        for _ in range(1000):
            x, y = int(self.chance.integers(10, WIDTH - size - 10)), int(self.chance.integers(110, HEIGHT - size - 10))
            if calm()[max(0, y - size // 2):y + size + size // 2, max(0, x - size // 2):x + size + size // 2].mean() < 6:
                return x, y
        return 30, HEIGHT - 60

    def thing(self, ground):
        """A part of a photograph, well off the ground's colour."""
        photo = opencv().imread(DATA + "fruits.jpg")
        y, x = (int(self.chance.integers(side - 120)) for side in photo.shape[:2])
        patch = opencv().resize(photo[y:y + 120, x:x + 120], (self.size,) * 2, interpolation=opencv().INTER_AREA).astype(float)
        if numpy.abs(patch.mean((0, 1)) - ground).mean() < 50:
            patch += ground - patch.mean((0, 1)) + (70 if ground.mean() < 100 else -70)
        return patch.clip(0, 255).astype(numpy.uint8)

    def centre(self, t):
        """In pixels of 128x96; None: the whole picture."""
        if self.kind in ("walker", "slow"):
            return (self.walked(t) + 9) / SCALE, (self.path + 21) / SCALE
        return ((self.x + self.size / 2) / SCALE, (self.y + self.size / 2) / SCALE) if self.kind in PLACED else None

    def walked(self, t):
        return -18 + (4.2 if self.kind == "walker" else 0.45) * (t - AT)

    def put(self, frame, patch, x, y):
        x, y, (height, width) = int(x), int(y), patch.shape[:2]
        left, right = max(0, x), min(WIDTH, x + width)
        if left < right:
            frame[y:y + height, left:right] = patch[:, left - x:right - x]

    def changed(self, frame, t):
        """The picture with its event, and the light's gain."""
        kind, after = self.kind, t >= AT
        if kind in OBJECTS and after or kind == "removed" and not after:
            self.put(frame, self.patch, self.x, self.y)
        elif kind in ("walker", "slow") and after:
            self.put(frame, self.person, self.walked(t), self.path + (2 * (t % 4 < 2) if kind == "walker" else 0))
        elif kind == "covered" and after:
            frame[:] = 18
        elif kind in ("moved", "bumped") and after:
            frame = numpy.roll(frame, (-12, 60) if kind == "moved" else (6, 9), (0, 1))
        elif kind == "defocus" and after:
            frame = opencv().GaussianBlur(frame, (0, 0), 5)
        if kind == "lightson" and not after or kind == "lightsoff" and after:
            return frame, 0.45
        if kind == "dawn":
            return frame, 0.4 + 0.6 * min(1, max(0, (t - AT + 600) / 900))  # begins before and goes on after
        if kind == "cloud":
            return frame, 1 - 0.15 * max(0, min(1, (t - AT) / 20, (80 - t + AT) / 20))
        return frame, 0.8 if kind == "dimmer" and after else 1.0

    def pictures(self, count, noise):
        clip, empty = street()
        for t in range(count):
            frame = (empty if self.place == "yard" else there_and_back(clip, t + self.start)).copy()
            if self.kind != "frozen" or t <= AT:
                frame, gain = self.changed(frame, t)
                grain, y, x = (int(self.chance.integers(most)) for most in (len(noises()), 16, 16))
                sd = 12.0 if self.kind == "noise" and t >= AT else noise
                last = (frame * numpy.float32(gain) + numpy.float32(sd) * noises()[grain][y:y + HEIGHT, x:x + WIDTH])
                last = last.clip(0, 255).astype(numpy.uint8)
            yield last


def write(scene, count, encoder, path):
    command = ["ffmpeg", "-y", "-v", "error", "-f", "rawvideo", "-pix_fmt", "bgr24", "-s", f"{WIDTH}x{HEIGHT}", "-r", str(FPS), "-i",
               "-", *ENCODERS[encoder].split(), "-pix_fmt", "yuv420p", str(path)]
    try:
        ffmpeg = subprocess.Popen(command, stdin=subprocess.PIPE)
        for picture in scene.pictures(count, NOISE.get(encoder, 2.0)):
            ffmpeg.stdin.write(picture.tobytes())
        ffmpeg.stdin.close()
    except OSError as error:
        raise Failure(f"ffmpeg: {error.strerror}") from error
    if ffmpeg.wait():
        raise Failure("ffmpeg failed")


class LongestStay:
    """Cells of 4 x 4 pixels that differ from a slow mean for longer than ever before there: the simplest rule with a place."""

    def __init__(self):
        self.mean, self.seen = None, 0
        self.stay, self.longest, self.active = numpy.zeros((24, 32)), numpy.zeros((24, 32), numpy.float32), numpy.zeros((24, 32), int)

    def see(self, frame):
        """Centres of the events that begin."""
        cv2, frame = opencv(), frame.astype(numpy.float32) / 255
        self.mean, self.seen = frame.copy() if self.mean is None else self.mean, self.seen + 1
        off = frame - self.mean * numpy.median(frame / (self.mean + 0.02))
        self.mean += (frame - self.mean) / min(self.seen, 1000)
        changed = (off * off).mean(2).reshape(24, 4, 32, 4).mean((1, 3)) > 0.004
        before, self.stay = self.stay, numpy.where(changed, self.stay + 1, 0)
        over = self.stay > 8 + 1.5 * cv2.dilate(self.longest, numpy.ones((3, 3)))
        begun = []
        if self.seen > LEARNED:
            count, labels, stats, centres = cv2.connectedComponentsWithStats(over.astype(numpy.uint8), connectivity=8)
            for blob in range(1, count):
                mask = labels == blob
                if stats[blob, 4] >= 3:
                    begun += [] if self.active[mask].any() else [tuple(centres[blob] * 4 + 2)]
                    self.active[cv2.dilate(mask.astype(numpy.uint8), numpy.ones((5, 5))) > 0] = 100
        self.active = numpy.maximum(self.active - 1, 0)
        ended = numpy.where(changed & (self.seen > LEARNED), 0, numpy.maximum(before, self.stay))
        self.longest = numpy.maximum(self.longest, ended.astype(numpy.float32))
        return begun


def seen(path):
    """[H,W,3] of a folder's PPMs; or of a video, as all rivals see it."""
    if path.is_dir():
        for file in sorted(path.glob("**/*.ppm")):
            _, size, _, pixels = file.read_bytes().split(b"\n", 3)
            yield numpy.frombuffer(bytearray(pixels), numpy.uint8).reshape(*map(int, reversed(size.split())), 3)
        return
    video = opencv().VideoCapture(str(path))
    while (read := video.read())[0]:
        yield opencv().resize(read[1], (WIDTH // SCALE, HEIGHT // SCALE), interpolation=opencv().INTER_AREA)


def mog2():
    return opencv().createBackgroundSubtractorMOG2(history=500, detectShadows=False)


def rivals(path):
    """Each arm's alarms."""
    mog, last = mog2(), None
    found, stay, stays = {arm: [] for arm in ARMS[2:]}, LongestStay(), []
    for frame in seen(path):
        stays += [(len(found["MOG2, share"]), centre) for centre in stay.see(frame)]
        mask = mog.apply(frame)
        _, _, blobs, centres = opencv().connectedComponentsWithStats(mask, connectivity=8)
        largest = 1 + int(blobs[1:, 4].argmax()) if len(blobs) > 1 else 0
        change = float(numpy.abs(frame.astype(int) - frame if last is None else frame.astype(int) - last).mean())
        found["MOG2, share"].append(((mask > 0).mean(), None))
        found["MOG2, blob"].append((blobs[largest, 4], tuple(centres[largest])) if largest else (0, None))
        found["frame difference"].append((change, None))
        last = frame
    return {"longest stay": stays, **{arm: alarms(figures, limit_of(figures)) for arm, figures in found.items()}}


def alarms(figures, limit):
    """(frame, place) where three figures in a row lie above it; another only after 100 frames without."""
    raised, row, quiet = [], 0, 100
    for t, (figure, place) in enumerate(figures):
        row = row + 1 if figure > limit else 0
        if row >= 3 and quiet >= 100:
            raised.append((t, place))
        quiet = 0 if row >= 3 else quiet + 1
    return raised


def limit_of(figures, begin=100):
    """From the stream's beginning, without the first frames: whichever is higher."""
    usual = [float(figure) for figure, _ in figures[begin:LEARNED]]
    return max(statistics.fmean(usual) + 6 * statistics.pstdev(usual), 1.5 * max(usual))


def ours(machine, path, count):
    """The report, and our alarms."""
    report = machine.run({"source.uri": path.as_uri()}, count)
    events = []
    for event in report["novelty"]["latest"]:
        place = None
        if "box" in event:
            (x, y, width, height), (across, down) = event["box"], event["size"]
            place = ((x + width / 2) * 128 / across, (y + height / 2) * 96 / down)
        events.append((event["frame"] + MINIMUM - 1, place, event["reason"]))
    return report, events


def judged(scene, found):
    """The first alarm from the event on, whether it is at the event's place, and the false ones before. What the alarms say in
    the street after the event may be about passers-by: with a place it counts only if it is near."""
    early = sum(JUDGED <= event[0] < AT for event in found)
    after = [event for event in found if event[0] >= AT]
    if scene.kind in SILENT:
        return {"early": early, "raised": len(after)}
    near = [event for event in after if event[1] and (centre := scene.centre(event[0])) and math.dist(event[1], centre) <= NEAR]
    placeless = [event for event in after if not event[1]]
    hits = after if scene.kind in WHOLE else sorted(near + placeless, key=lambda event: event[0])
    placed = [event for event in after if event[1]]
    return {"early": early, "delay": hits[0][0] - AT if hits else None, "placed": len(placed), "near": len(near),
            "reason": hits[0][2] if hits and len(hits[0]) > 2 else ""}


def stream(machine, kind, place, trial, encoder, count, folder, keep):
    """A row an arm."""
    scene = Scene(kind, place, trial)
    name = f"{kind}-{place}-{trial}-{encoder.replace(' ', '_')}"
    path = Path(folder, name + (".avi" if encoder == "MJPEG" else ".mp4"))
    if not path.exists():
        part = path.with_stem("part")
        write(scene, count, encoder, part)
        part.rename(path)
    found = {"Millrace": ours(machine, path, count)[1], **rivals(path)}
    if not keep:
        path.unlink()
    rows = []
    for arm, each in found.items():
        figures = {"raised": sum(event[0] >= JUDGED for event in each)} if kind == "none" else judged(scene, each)
        rows.append({"arm": arm, "kind": kind, "place": place, "trial": trial, "encoder": encoder, "frames": count,
                     "events": [[event[0], *(event[2:] or ("",)), *map(float, event[1] or ())] for event in each], **figures})
    return rows


def caused(found, arms):
    """An arm's alarms after the event that it doesn't raise at the same time and place in the same stream with nothing planted."""
    def stream(each):
        return each["arm"], each["place"], each["trial"], each["encoder"]

    control = [event for each in arms if each["kind"] == "none" and stream(each) == stream(found) for event in each["events"]]
    for event in found["events"]:
        if event[0] >= AT and not any(abs(event[0] - other[0]) <= SAME and len(event) == len(other)
                                      and math.dist(event[2:], other[2:]) <= NEAR for other in control):
            yield event


def summed(arms, kind, place, names=ARMS):
    """A row of the page: each arm's recall and median delay, and its events at a place."""
    row = {"what": kind, "place": place}
    for arm in names:
        mine = [each for each in arms if (each["arm"], each["kind"], each["place"]) == (arm, kind, place)]
        if kind in SILENT:
            raised = [sum(each["raised"] > 0 for each in mine), sum(any(caused(each, arms)) for each in mine)]
            row[arm] = f"{raised[1]}/{len(mine)}" + (f" ({raised[0]})" if raised[0] != raised[1] else "")
            continue
        delays = [each["delay"] for each in mine if each["delay"] is not None]
        row[arm] = f"{len(delays)}/{len(mine)}" + (f" +{statistics.median(delays):.0f}" if delays else "")
        placed = sum(each["placed"] for each in mine)
        if arm == "Millrace" and kind in PLACED and placed:
            row["near"] = f"{sum(each['near'] for each in mine)}/{placed}"
        if arm == "Millrace":
            row["reasons"] = ", ".join(sorted({each["reason"] for each in mine if each["reason"]}))
    return row


def quiet(arms, place, encoder):
    """False events: a stream without an event, or what came before the events."""
    row = {"what": encoder, "place": place}
    for arm in ARMS:
        mine = [each for each in arms if (each["arm"], each["place"]) == (arm, place)]
        if encoder == "before the events":
            mine = [each for each in mine if each["kind"] != "none"]
            raised, frames = sum(each["early"] for each in mine), (AT - JUDGED) * len(mine)
        else:
            mine = [each for each in mine if (each["kind"], each["encoder"]) == ("none", encoder)]
            raised, frames = sum(each["raised"] for each in mine), sum(each["frames"] - JUDGED for each in mine)
        row["minutes"] = frames / FPS / 60
        row[arm] = f"{raised / row['minutes'] * 10:.1f}" if frames else ""
    return row


def events(machine, options):
    opencv()
    if options.keep and not Path(options.keep).is_dir():
        raise Failure(f"--keep {options.keep}: no such folder", 2)
    kinds = PLACED + WHOLE + SILENT
    jobs = [(kind, place, trial, "crf 23", FRAMES) for trial in range(options.rounds) for place in PLACES for kind in kinds]
    silent = [("none", "yard", 0, encoder, QUIET) for encoder in ENCODERS]
    silent += [("none", "street", trial, "crf 23", QUIET) for trial in range(options.rounds)]
    jobs = [("obj12", "yard", 0, "crf 23", AT + 50)] if options.quick else jobs + silent
    arms = []
    with tempfile.TemporaryDirectory() as folder:
        for job in one_by_one("events", jobs):
            arms += stream(machine, *job, options.keep or folder, options.keep)
    return results(arms, jobs, 1 if options.quick else options.rounds)


def results(arms, jobs, trials):
    kinds = {(job[0], job[1]) for job in jobs}
    rows = {group: [summed(arms, kind, place) for place in PLACES for kind in those if (kind, place) in kinds]
            for group, those in (("found", PLACED + WHOLE), ("gradual", SILENT))}
    rows["quiet"] = [quiet(arms, place, encoder) for kind, place, trial, encoder, _ in jobs if kind == "none" and trial == 0]
    rows["quiet"] += [quiet(arms, place, "before the events") for place in PLACES if any(place == each for _, each in kinds)]
    return {"note": "", "trials": trials, "frames": FRAMES, "at": AT, "quiet": QUIET, "arms": arms, "threads": 2,
            **{f"{group}_rows": those for group, those in rows.items()}}
