"""Every kind of file that FFmpeg and Pillow write, against the pixels that they read back.

Each file is read right, or refused in one line. Prints a table; ARGUMENT: only names that match this pattern.
"""
import collections
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from PIL import Image, ImageOps

SHOW = os.environ["SHOW_FRAMES"]
CONTAINERS = "mkv mov mp4 avi nut webm ts mpg flv asf mxf ogv 3gp gif apng y4m ivf h264 obu dv".split()
TEST = "testsrc2=size={}:rate=25:duration=0.4"
LIBRARIES = ("imread_(", "libpng error")  # OpenCV's decoders complain by themselves, too
SIZES = "160x96 720x576 176x144 720x480 1920x1080"  # some encoders know few sizes


def run(*command, seconds=120):
    try:
        return subprocess.run(command, capture_output=True, timeout=seconds, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, "hangs", b"", b"")


def ppm_frames(data):
    frames = []
    while data:
        head = re.match(rb"P6\n(\d+) (\d+)\n255\n", data)
        width, height = int(head[1]), int(head[2])
        end = head.end() + 3 * width * height
        frames.append(np.frombuffer(data[head.end():end], np.uint8).reshape(height, width, 3))
        data = data[end:]
    return frames


def by_ffmpeg(path):
    """What FFmpeg reads of it, turned as it says."""
    return ppm_frames(run("ffmpeg", "-v", "error", "-i", path, "-fps_mode", "passthrough", "-c:v", "ppm",
                          "-pix_fmt", "rgb24", "-f", "image2pipe", "-").stdout)


def distance(ours, theirs):
    """Of the pictures' means; of their blocks', which may be twice as far: colours are interpolated in other ways."""
    if ours.shape != theirs.shape:
        return 255.0
    rows, columns = (max(1, side // 16) for side in ours.shape[:2])
    gap = ours.astype(float) - theirs
    blocks = [abs(part.mean((0, 1))) for band in np.array_split(gap, rows) for part in np.array_split(band, columns, 1)]
    return max(abs(gap.mean((0, 1))).mean(), np.mean(blocks) / 2)


def judge(uri, *accepted):
    """("right" | "refused" | what is wrong, detail)."""
    shown = run(SHOW, uri)
    lines = [line for line in shown.stderr.decode(errors="replace").splitlines() if line and not line.startswith(LIBRARIES)]
    if shown.returncode not in (0, 1, 3):
        return f"CRASH or hang, {shown.returncode}", " | ".join(lines[-2:])
    frames = ppm_frames(shown.stdout)
    if shown.returncode or not frames:
        named = len(lines) == (1 if shown.returncode == 3 else 2)
        return "refused" if named and not frames else "WRONG end", " | ".join(lines)
    if len(frames) != len(accepted[0]):
        return "WRONG count", f"{len(frames)} of {len(accepted[0])} by {lines[0]}"
    furthest = min(max(map(distance, frames, expected)) for expected in accepted)
    return "right" if furthest <= 2 else "WRONG pixels", f"{furthest:.1f} by {' | '.join(lines)}"


def encoders():
    for line in run("ffmpeg", "-v", "error", "-encoders").stdout.decode().splitlines():
        if (found := re.match(r" V\S* +(\w\S*) ", line)) and found[1] != "=":
            text = run("ffmpeg", "-v", "error", "-h", "encoder=" + found[1]).stdout.decode()
            formats = re.search(r"Supported pixel formats: (.*)", text)
            yield from ((found[1], form) for form in (formats[1].split() if formats else ["yuv420p"]))


def encode(path, *how):
    for size in SIZES.split():
        run("ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-i", TEST.format(size), *how, "-strict", "-2", path)
        if os.path.exists(path) and os.path.getsize(path) > 200:
            return True
    return False


def video(folder, encoder, form):
    """In the first container in which FFmpeg reads it back."""
    for container in CONTAINERS[:5]:
        path = f"{folder}/{encoder}_{form}.{container}"
        if encode(path, "-c:v", encoder, "-pix_fmt", form) and (expected := by_ffmpeg(path)):
            return judge(path, expected)
        if os.path.exists(path):
            os.remove(path)
    return "none", "FFmpeg cannot write it, or not read it back"


def contained(folder, container):
    path = f"{folder}/container.{container}"
    if not encode(path):
        return "none", "FFmpeg has no encoder for it"
    return judge(path, by_ffmpeg(path))


def scene(mode):
    rows, columns = np.mgrid[0:96, 0:160]
    colours = np.stack([columns * 255 // 160, rows * 255 // 96, (rows + columns) % 256], 2).astype(np.uint8)
    colours[8:40, 8:60] = (250, 20, 30)
    picture = Image.fromarray(colours)
    if mode == "I;16":
        return Image.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) * 257)
    return picture.convert(mode)


def by_pillow(path):
    picture = ImageOps.exif_transpose(Image.open(path))
    if picture.mode.startswith("I"):
        return np.repeat((np.asarray(picture) // 257).astype(np.uint8)[:, :, None], 3, 2)
    return np.asarray(picture.convert("RGB"))


def picture(folder, form, mode, how):
    path = f"{folder}/{form}_{mode.replace(';', '')}{'_'.join(map(str, how.values()))}{ENDINGS[form]}"
    try:
        scene(mode).save(path, format=form, **how)
        expected = by_pillow(path)
    except (OSError, ValueError, KeyError, TypeError):
        return "none", "Pillow cannot write it, or not read it back"
    return judge("images:" + path, [expected], *filter(None, [by_ffmpeg(path)]))


def turned_picture(folder, form, turn):
    path = f"{folder}/turned_{turn}{ENDINGS[form]}"
    exif = Image.Exif()
    exif[0x112] = turn
    scene("RGB").save(path, format=form, exif=exif)
    return judge("images:" + path, [by_pillow(path)])


def cut_picture(folder, form):
    path = f"{folder}/cut_{form}{ENDINGS[form]}"
    scene("RGB").save(path, format=form)
    os.truncate(path, os.path.getsize(path) // 2)
    verdict, detail = judge("images:" + path, [])
    return ("WRONG half", detail) if "count" in verdict else (verdict, detail)


def animation(folder, form):
    path = f"{folder}/moving{ENDINGS[form]}"
    frames = [Image.fromarray(np.roll(np.asarray(scene("RGB")), 8 * n, 1)) for n in range(21)]
    frames[0].save(path, format=form, save_all=True, append_images=frames[1:], duration=40)
    moving = Image.open(path)
    expected = []
    for n in range(21):
        moving.seek(n)
        expected.append(np.asarray(moving.convert("RGB")))
    return judge(path, expected)


Image.init()
ENDINGS = {form: ending for ending, form in sorted(Image.EXTENSION.items(), reverse=True)}
ENDINGS |= {"JPEG": ".jpg", "PNG": ".png", "TIFF": ".tif", "WEBP": ".webp", "JPEG2000": ".jp2", "TGA": ".tga", "SGI": ".sgi", "PPM": ".ppm"}
HOW = {"JPEG": [{}, {"quality": 95, "subsampling": 0}, {"progressive": True}],
       "TIFF": [{"compression": kind} for kind in ("raw", "tiff_lzw", "packbits", "tiff_adobe_deflate", "jpeg")],
       "WEBP": [{}, {"lossless": True}]}


def jobs():
    for encoder, form in encoders():
        yield "video by encoder and pixel format", f"{encoder} {form}", (video, encoder, form)
    for container in CONTAINERS:
        yield "video by container", container, (contained, container)
    for form in sorted(set(Image.SAVE) & set(ENDINGS) - {"PDF", "MPO", "PALM", "WMF", "HDF5", "GRIB", "BUFR"}):
        for mode in ("1", "L", "P", "RGB", "RGBA", "LA", "CMYK", "I;16"):
            for how in HOW.get(form, [{}]):
                yield "picture by format and mode", f"{form} {mode} {how}", (picture, form, mode, how)
    for form in "AVIF BMP GIF JPEG JPEG2000 PCX PNG PPM SGI TGA TIFF WEBP".split():
        yield "picture cut in half", form, (cut_picture, form)
    for form in ("JPEG", "PNG", "TIFF", "WEBP"):
        for turn in range(1, 9):
            yield "picture by orientation", f"{form} {turn}", (turned_picture, form, turn)
    for form in ("GIF", "PNG", "WEBP"):
        yield "animation", form, (animation, form)


def main(pattern=""):
    counts = collections.defaultdict(collections.Counter)
    wanted = [job for job in jobs() if re.search(pattern, f"{job[0]}: {job[1]}")]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        verdicts = pool.map(lambda job: job[2][0](folder, *job[2][1:]), wanted)
        for (kind, name, _), (verdict, detail) in zip(wanted, verdicts):
            counts[kind][verdict] += 1
            print(f"{verdict}\t{kind}: {name}\t{detail}", flush=True)
    for kind, count in counts.items():
        print(f"| {kind} | " + ", ".join(f"{number} {verdict}" for verdict, number in count.most_common()) + " |")
    return any(verdict not in ("right", "refused", "none") for count in counts.values() for verdict in count)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
