"""Atomic file writes."""

import os


def write_whole(path: "str | os.PathLike[str]", content: bytes) -> None:
    """Writes a temporary file and renames it to `path`. On OSError leaves nothing behind."""
    temporary = f"{os.fspath(path)}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        if os.path.exists(temporary):
            os.remove(temporary)
        raise
