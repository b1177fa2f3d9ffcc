"""The error of this package."""

import difflib
import sys
from collections.abc import Iterable


class Error(ValueError):
    """One line: what is wrong, where, and the nearest valid name. A ValueError, as it is mostly about bad input."""


def nearest(name: str, names: Iterable[str]) -> str:
    """Of `names` the one most like `name`; "": there are none."""
    return (difflib.get_close_matches(name, list(names), 1, 0) or [""])[0]


def fail(why: str, code: int = 1) -> int:
    """Prints a command's error; returns its exit code."""
    print(f"millrace: error: {why}", file=sys.stderr)
    return code
