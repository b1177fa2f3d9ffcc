"""Servers on loopback that a run reads from or tells, and the page that a run serves."""

import contextlib
import http.server
import io
import itertools
import json
import os
import socket
import subprocess
import threading
import time
import unittest
import urllib.error
import urllib.request

from PIL import Image

import program

RTSP_SERVER = os.environ.get("RTSP_SERVER", str(program.ROOT / "build" / "release" / "tests" / "io" / "rtsp_server"))
needs_rtsp = unittest.skipUnless(os.path.exists(RTSP_SERVER), "this build has no GStreamer")


def free_port():
    """One that a server may listen on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Camera:
    """An RTSP camera until the test ends; a `port` makes it come back where another was."""

    def __init__(self, test, *options, port=None):
        options = ["tcp", *options, *([f"port={port}"] if port else [])]
        self.process = subprocess.Popen([RTSP_SERVER, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        test.addCleanup(self.stop)
        self.port = int(self.process.stdout.readline())
        self.uri = f"rtsp://127.0.0.1:{self.port}"

    def stop(self):
        self.process.kill()
        self.process.communicate()


def serve(test, config, *options, token=""):
    """(the process, its page) of `millrace run --serve`, until the test ends."""
    options = [*options, *(["--token", token] if token else [])]
    process = test.ends(program.start("run", config, "--serve", "127.0.0.1:0", *options))
    return process, Page(test.read_until(process, "page: ").split()[0], token)


class CameraRun:
    """Of a test: a run at an RTSP camera that serves its page, as a process whose words go to a file."""

    def begin(self, tables):
        with open(self.folder / "stderr", "w") as err:
            self.process = subprocess.Popen([program.MILLRACE, "run", self.write(tables), "--serve", "127.0.0.1:0"],
                                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err)
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.kill)
        self.wait_until(lambda: "page: " in self.told(), "no page", self.process)
        self.page = Page(self.told().partition("page: ")[2].split()[0])

    def told(self):
        return (self.folder / "stderr").read_text()


class QuietServer(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        """A client that has read enough hangs up."""


def web_server(test, handler):
    """A web server until the test ends; its `url` ends without a slash."""
    handler.log_message = lambda *_: None
    server = QuietServer(("127.0.0.1", 0), handler)
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    test.addCleanup(server.server_close)
    test.addCleanup(server.shutdown)
    return server


class WebCamera(http.server.SimpleHTTPRequestHandler):
    """Of web_server(): files of the server's `folder`, /to/URL sent to that URL, and what `live` makes of other paths."""

    def __init__(self, *arguments):
        super().__init__(*arguments, directory=arguments[2].folder)

    def do_GET(self):
        self.server.asked.append(self.path)
        if self.path.startswith("/to/"):
            self.begin(302, Location=self.path[len("/to/"):])
        elif self.path[1:] in self.server.live:
            self.send_parts(**self.server.live[self.path[1:]])
        else:
            super().do_GET()

    def begin(self, status, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def send_parts(self, kind="image/jpeg", boundary="x", declared=None, first=True, length=True, line="\r\n", more="", before=b"",
                   sizes=((64, 48),), format="JPEG", count=None, after=None):
        """`after`: bytes that follow `count` pictures, and then nothing."""
        self.begin(200, Content_Type=f"multipart/x-mixed-replace;boundary={declared or boundary}")
        with contextlib.suppress(OSError):
            self.wfile.write(before)
            for n, size in zip(range(count) if count else itertools.count(), itertools.cycle(sizes)):
                picture = io.BytesIO()
                Image.new("RGB", size, (20, 200, 60)).save(picture, format)
                head = [f"--{boundary}"] * (first or n > 0) + [f"Content-Type: {kind}"] * bool(kind) + [more] * bool(more)
                head += [f"Content-Length: {len(picture.getvalue())}"] * length
                self.wfile.write((line.join(head) + 2 * line).encode() + picture.getvalue() + line.encode())
                time.sleep(0.02)
            if after is not None:
                self.wfile.write(after)
                time.sleep(30)


def web_camera(test, folder, **live):
    """A web_server() of WebCamera; `asked` lists the paths asked for."""
    server = web_server(test, WebCamera)
    server.folder, server.live, server.asked = folder, live, []
    return server


class Page:
    """What a run with --serve answers."""

    def __init__(self, url, token=""):
        self.url = url
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def request(self, path, body=None, **headers):
        """(HTTP status, text); a `body` is sent as the page sends its commands."""
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers = {"Content-Type": "application/json", "X-Millrace": "control", **headers}
        request = urllib.request.Request(self.url + path, data, {**self.headers, **headers})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def state(self):
        return json.loads(self.request("state")[1])

    def controls(self):
        return self.state()["controls"]

    def trained(self):
        return self.state()["frames"]["trained"]

    def health(self):
        """(HTTP status, JSON)"""
        status, text = self.request("healthz")
        return status, json.loads(text)

    def ask(self, **command):
        return self.request("control", command)[0]
