"""Servers on loopback that a run reads from or tells, and the page that a run serves."""

import http.server
import json
import os
import subprocess
import threading
import unittest
import urllib.error
import urllib.request

import program

RTSP_SERVER = os.environ.get("RTSP_SERVER", str(program.ROOT / "build" / "release" / "tests" / "io" / "rtsp_server"))
needs_rtsp = unittest.skipUnless(os.path.exists(RTSP_SERVER), "this build has no GStreamer")


class Camera:
    """An RTSP camera; a `port` makes it come back where another was."""

    def __init__(self, *options, port=None):
        options = [*options, *([f"port={port}"] if port else [])]
        self.process = subprocess.Popen([RTSP_SERVER, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())
        self.uri = f"rtsp://127.0.0.1:{self.port}"

    def stop(self):
        self.process.kill()
        self.process.communicate()


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

    def open_camera(self, rate):
        self.camera = Camera("tcp", f"rate={rate}")
        self.addCleanup(lambda: self.camera.stop())

    def told(self):
        return (self.folder / "stderr").read_text()


class QuietServer(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        """A client that has read enough hangs up."""


def web_server(test, handler):
    """A web server until the test ends; its `url` ends without a slash."""
    server = QuietServer(("127.0.0.1", 0), handler)
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    test.addCleanup(server.server_close)
    test.addCleanup(server.shutdown)
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
