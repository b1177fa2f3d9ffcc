"""Files that are whole or not there."""

import os


def write_whole(path: "str | os.PathLike[str]", content: bytes) -> None:
    """Writes beside `path`, and then in its place. Raises OSError and leaves nothing behind."""
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
