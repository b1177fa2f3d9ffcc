"""A stand-in for Home Assistant: a page of all entities that MQTT discovery announces. home.py BROKER[:PORT] PORT"""

import contextlib
import html
import http.server
import json
import subprocess
import sys
import threading

import jinja2


class Home:
    """Hears all topics, and keeps the latest message of each."""

    def __init__(self, broker):
        host, _, port = broker.partition(":")
        self.latest = {}
        self.process = subprocess.Popen(["mosquitto_sub", "-h", host, "-p", port or "1883", "-t", "#", "-q", "1", "-F",
                                         "%x %t"], stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.hear, daemon=True).start()

    def hear(self):
        with contextlib.suppress(ValueError):  # closed
            for line in self.process.stdout:
                payload, topic = line.rstrip("\n").split(" ", 1)
                self.latest[topic] = bytes.fromhex(payload)

    def text(self, topic):
        return self.latest.get(topic, b"").decode()

    def entities(self):
        """By (platform, name): what its discovery topic says."""
        told = [(topic.split("/")[1], json.loads(text)) for topic, text in list(self.latest.items())
                if topic.startswith("homeassistant/") and text]
        return {(platform, entity["name"]): entity for platform, entity in told}

    def shows(self, platform, name):
        entity = self.entities()[platform, name]
        return jinja2.Template(entity["value_template"]).render(value_json=json.loads(self.text(entity["state_topic"])))

    def page(self):
        rows = []
        for (platform, name), entity in sorted(self.entities().items()):
            shown = "" if platform == "button" else self.shows(platform, name) if "value_template" in entity else \
                f'<img src="/{entity["image_topic"]}">' if platform == "image" else ""
            rows.append(f"<tr><td>{platform}<td>{html.escape(name)}<td>{shown}")
        return f"<!doctype html><meta http-equiv=refresh content=2><title>Home</title><table>{''.join(rows)}</table>"


def serve(home, port):
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            picture = home.latest.get(self.path[1:])
            self.send_response(200)
            self.send_header("Content-Type", "image/png" if picture else "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(picture or home.page().encode())

    http.server.ThreadingHTTPServer(("", port), Page).serve_forever()


if __name__ == "__main__":
    serve(Home(sys.argv[1]), int(sys.argv[2]))
