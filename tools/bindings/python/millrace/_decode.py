"""Decodes pictures and videos for a wheel's program: run by io/source/codecs_python.cpp, which says how they talk."""

from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy
    from av import VideoFrame
    from numpy.typing import NDArray

    Pixels = NDArray[numpy.uint8]  # [H,W] or [H,W,C]

del sys.path[0]  # this folder, whose modules aren't top-level ones


def answer(said: Mapping[str, Any], pixels: memoryview | bytes | None = None) -> None:
    sys.stdout.buffer.write(json.dumps(said).encode() + b"\n")
    if pixels is not None:
        sys.stdout.buffer.write(pixels)
    sys.stdout.buffer.flush()


def read(path: str, mode: str) -> Pixels:
    """BGR or grey (L) pixels, upright; as they are ("") only if grey."""
    import numpy
    from PIL import Image, ImageOps
    Image.MAX_IMAGE_PIXELS = None  # the program has looked at the size
    with Image.open(path) as image:
        deep = image.mode.startswith("I")  # 16 bits
        if not mode and image.mode not in ("1", "L"):
            return numpy.zeros((1, 1, 3), numpy.uint8)
        upright = image if image.format == "WEBP" else ImageOps.exif_transpose(image)  # the program turns WebP itself
        if deep:
            upright = Image.fromarray((numpy.asarray(upright) >> 8).astype(numpy.uint8))
        pixels = numpy.asarray(upright.convert("RGB" if mode == "BGR" else "L"))
    return pixels[..., ::-1] if mode == "BGR" else pixels


def encode(kind: str, pixels: Pixels, quality: int) -> bytes:
    from PIL import Image
    file = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels[..., ::-1]).save(file, kind, quality=quality, compress_level=3)
    return file.getvalue()


def turned(pixels: Pixels, frame: VideoFrame) -> Pixels:
    """Upright, by the display matrix, of quarter turns and mirrors."""
    import numpy
    data = cast("Mapping[str, bytes]", frame.side_data).get("DISPLAYMATRIX")
    if data is None:
        return pixels
    matrix = numpy.frombuffer(bytes(data), "<i4")
    aside = matrix[0] == 0 and matrix[1] != 0
    if aside:
        pixels = pixels.swapaxes(0, 1)
    if matrix[3 if aside else 0] < 0:
        pixels = pixels[:, ::-1]
    return pixels[::-1] if matrix[1 if aside else 4] < 0 else pixels


def video(path: str, channels: int, most: int) -> None:
    """Answers with the video's properties, then with each frame, then with the end's time."""
    import av
    import numpy
    from av.error import FFmpegError
    from av.stream import Disposition

    def check(width: int, height: int) -> None:
        if width * height > most:
            raise ValueError(f"a picture of {width}x{height} has more pixels than source.max_pixels = {most} allows")

    with open(path, "rb") as file, av.open(file, "r", options={"protocol_whitelist": "none"}) as container:
        streams = [s for s in container.streams.video if not s.disposition & Disposition.attached_pic]
        if not streams:
            raise ValueError("there is no video in it")
        stream = max(streams, key=lambda s: s.width * s.height)
        check(stream.width, stream.height)
        stream.codec_context.options = {"max_pixels": str(most + 64 * min(most, 1 << 16))}  # with a decoder's padding
        stream.thread_type = "AUTO"
        rate, base = float(stream.average_rate or 0), stream.time_base or 0
        opened, last, reached, wrong = False, None, 0.0, "there is no picture in it"
        for packet in container.demux():
            if packet.pts is not None and packet.time_base:
                end = packet.pts + (packet.duration or 0) - (packet.stream.start_time or 0)
                reached = max(reached, float(end * packet.time_base))
            if packet.stream is not stream:
                continue
            try:
                frames = stream.decode(packet)
            except FFmpegError as error:
                frames, wrong = [], f"FFmpeg cannot decode it ({error.strerror})"
                if opened:
                    answer({"corrupt": wrong})
            for frame in frames:
                if frame.is_corrupt:
                    if opened:
                        answer({"corrupt": ""})
                    continue
                check(frame.width, frame.height)
                shown = frame.reformat(format="gray" if channels == 1 else "rgb24", interpolation="BICUBIC").to_ndarray()
                pixels = numpy.ascontiguousarray(turned(numpy.asarray(shown, numpy.uint8), frame))
                size = {"height": pixels.shape[0], "width": pixels.shape[1]}
                if not opened:
                    answer({"codec": stream.codec_context.name, "fps": rate, **size,
                            "duration": float((stream.duration or 0) * base)})
                    opened = True
                if frame.pts is not None:
                    last = frame.time - float((stream.start_time or 0) * base)
                else:
                    last = 0.0 if last is None else last + (1 / rate if rate else 0)
                answer({"time": last, **size}, pixels.data)
        if not opened:
            raise ValueError(wrong)
        answer({"end": reached})


def serve() -> None:
    import numpy
    for line in iter(sys.stdin.buffer.readline, b""):
        asked = json.loads(line)
        if "video" in asked:
            try:
                video(asked["video"], asked["channels"], asked["most"])
            except (BrokenPipeError, ImportError):
                raise
            except Exception as error:
                cause = getattr(error, "strerror", None)
                answer({"error": f"FFmpeg cannot read it ({cause})" if cause else str(error)})
        elif "read" in asked:
            try:
                pixels = read(asked["read"], asked["mode"])
            except ImportError:
                raise
            except Exception:  # Pillow's decoders raise many kinds at a broken file
                pixels = numpy.zeros((0, 0), numpy.uint8)
            height, width, channels = numpy.atleast_3d(pixels).shape
            answer({"height": height, "width": width, "channels": channels}, numpy.ascontiguousarray(pixels).data)
        else:
            pixels = numpy.frombuffer(sys.stdin.buffer.read(asked["bytes"]), numpy.uint8)
            file = encode(asked["encode"], pixels.reshape(asked["height"], asked["width"], asked["channels"]), asked["quality"])
            answer({"bytes": len(file)}, file)


try:
    serve()
except ImportError as error:
    name = {"PIL": "pillow"}.get(error.name or "", error.name)
    answer({"error": f"needs the Python package {name}: {sys.executable} -m pip install {name}"})
except (BrokenPipeError, ConnectionResetError, KeyboardInterrupt):  # nobody reads any more
    pass
