"""A simulated run (page_play) and its viewers, driven from outside."""

import base64
import contextlib
import http.client
import json
import os
import re
import socket
import struct
import subprocess
import tempfile
import time
import unittest
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
PLAY = os.environ.get("PAGE_PLAY", str(ROOT / "build" / "release" / "tests" / "page" / "page_play"))
NEXT = b"\x81\x84\0\0\0\0next"  # a masked text message
TOKEN = "a-token-of-at-least-16-characters"
AWAY = {"connected": False, "last_error": "rtsp://viewer:secret@camera.example/street: no picture for 2.5 s"}


class Play:
    """A running page_play; a context manager."""

    def __init__(self, serve="127.0.0.1:0", token="", classes=0, snapshots=""):
        self.process = subprocess.Popen([PLAY, serve, token, str(classes), str(snapshots)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        self.port = urlsplit(self.url).port

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.communicate(timeout=120)  # its stdin ends, and so does it

    def tell(self, command=""):
        """Sends a command; returns (frames trained, pictures shown)."""
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return tuple(map(int, self.process.stdout.readline().split()))

    def change(self, **parts):
        """Merges parts into the run's state."""
        self.tell(json.dumps(parts))

    def memory(self):
        """Resident bytes."""
        return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())[1]) << 10

    def ask(self, path, method="GET", body=None, **headers):
        """(status, headers, text) of one request; header names have _ for -."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode(errors="replace")

    def status(self, path, *args, **headers):
        return self.ask(path, *args, **headers)[0]

    def state(self):
        return json.loads(self.ask("/state")[2])

    def command(self, command, **headers):
        """Sends a command as the page does; returns the status."""
        return self.order("/control", command, **headers)

    def order(self, path, command, **headers):
        headers = {"Content_Type": "application/json", "X_Millrace": "control", **headers}
        return self.status(path, "POST", json.dumps(command), **headers)

    def events(self):
        return json.loads(self.ask("/events")[2])["events"]

    def connect(self, buffer=None):
        """A TCP connection; `buffer`: the size of its receive buffer."""
        one = socket.socket()
        if buffer:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        one.settimeout(60)
        one.connect(("127.0.0.1", self.port))
        return one

    def watch(self, buffer=None, **headers):
        """A TCP connection that has asked for the WebSocket."""
        one = self.connect(buffer)
        headers = {"Host": f"127.0.0.1:{self.port}", "Upgrade": "websocket", "Connection": "Upgrade",
                   "Sec-WebSocket-Version": 13, "Sec-WebSocket-Key": base64.b64encode(bytes(16)).decode(), **headers}
        lines = ["GET /live HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        one.sendall("\r\n".join(lines).encode())
        return one


def messages(viewer):
    """The messages of a WebSocket as (is it text, bytes), each confirmed as the page does."""
    stream = viewer.makefile("rb")
    while stream.readline().strip():
        pass
    while True:
        first, length = stream.read(2)
        if length == 126:
            length = struct.unpack(">H", stream.read(2))[0]
        elif length == 127:
            length = struct.unpack(">Q", stream.read(8))[0]
        body = stream.read(length)
        if first & 15 in (1, 2):
            viewer.sendall(NEXT)
            yield first & 15 == 1, body


class PlayTest(unittest.TestCase):
    def folder(self):
        return self.enterContext(tempfile.TemporaryDirectory())

    def play(self, **options):
        return self.enterContext(Play(**options))

    def wait_for(self, condition, what="it does not happen"):
        """What condition() gives, once that is true."""
        end = time.monotonic() + 60
        while not (result := condition()):
            if time.monotonic() > end:
                self.fail(what() if callable(what) else what)
            time.sleep(0.05)
        return result
