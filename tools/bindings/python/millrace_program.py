#!python
"""The `millrace` of a wheel: the program for this system, with GStreamer or without."""

import ctypes
import importlib.util
import os
import sys
from pathlib import Path

NEEDED = ("libgstapp-1.0.so.0", "libgstvideo-1.0.so.0", "libgstrtspserver-1.0.so.0")


def has_gstreamer():
    try:
        for library in NEEDED:
            ctypes.CDLL(library)
    except OSError:
        return False
    return True


package = Path(importlib.util.find_spec("millrace").submodule_search_locations[0])
program = package / ("gstreamer" if has_gstreamer() else "plain") / "millrace"
# Commands that run Python find this one.
os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
os.execv(program, sys.argv)
