#!python
"""The `millrace` of a wheel: starts the program that lies in the package. Also the script of that name, which imports no PyTorch."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import sys
from pathlib import Path

DEMO = """\
[source]
uri = "{package}/street.mp4"  # 40 s of a street; then a tree is there instead
pace = "asap"
width = 96
height = 72
[novelty]
snapshots = "millrace-demo"
"""


def wrong_torch() -> str:
    """What to install, if PyTorch is missing or another than this wheel was built with; else empty."""
    try:
        wanted = [re.split(r"[=;, ]+", line)[1] for line in importlib.metadata.requires("millrace") or [] if line.startswith("torch==")]
    except importlib.metadata.PackageNotFoundError:  # not installed: a build tree's
        wanted = []
    found: str | None
    try:
        found = importlib.metadata.version("torch").split("+")[0]
    except importlib.metadata.PackageNotFoundError:
        found = None if importlib.util.find_spec("torch") is None else "".join(wanted)
    if found is None or (wanted and found != wanted[0]):
        there = f"this one is {found}" if found else "there is none"
        return f"millrace needs torch{' '.join(['', *wanted])}, {there}: {sys.executable} -m pip install torch{'=='.join(['', *wanted])}"
    return ""


def main() -> None:
    spec = importlib.util.find_spec("millrace")
    package = Path((spec and spec.submodule_search_locations or ["millrace"])[0])
    program = package / "millrace"
    if wrong := wrong_torch():
        sys.exit(f"millrace: error: {wrong}")
    if not program.exists():
        sys.exit(f"millrace: error: {package} holds no program: it is a build tree's; run the program beside it")
    os.environ["MILLRACE_PYTHON"] = sys.executable
    words = sys.argv[1:]
    if words[:1] == ["demo"]:
        Path("millrace-demo").mkdir(exist_ok=True)
        config = Path("millrace-demo/demo.toml")
        config.write_text(DEMO.format(package=package))
        print(f"millrace: learning a street until something else is there: millrace run {config}", file=sys.stderr)
        words = ["run", str(config), *words[1:]]
    os.execv(program, ["millrace", *words])


if __name__ == "__main__":
    main()
