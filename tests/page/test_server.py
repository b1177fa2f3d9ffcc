"""Access to the page's server, its formats, and its limits against viewers that never read."""

import http.client
import itertools
import json
import re
import shutil
import subprocess
import time
from pathlib import Path

from play import AWAY, TOKEN, Play, PlayTest, messages

PATHS = ["/", "/app.js", "/app.css", "/dygraph.js", "/state", "/history", "/metrics", "/healthz", "/live",
         "/events", "/events/NAME", "/picture/input", "/picture/target", "/picture/prediction", "/picture/error",
         "/picture/camera"]
STALLED = 100
MONITORING = Path(__file__).resolve().parents[2] / "tools" / "page" / "monitoring"


class Admission(PlayTest):
    def test_nothing_is_had_without_the_token(self):
        play = self.play(serve="0.0.0.0:0", token=TOKEN)
        for path in [*PATHS, "/control", "/nothing"]:
            for headers in ({}, {"Authorization": "Bearer " + TOKEN[:-1]}, {"Authorization": "Bearer " + TOKEN[:-1] + "~"},
                            {"Authorization": "Basic " + TOKEN},
                            {"Cookie": f"millrace_{play.port}="}, {"Cookie": f"millrace_{play.port}=x"}):
                self.assertEqual(play.status(path, **headers), 401, (path, headers))
        for wrong in TOKEN[:-1], TOKEN[:-1] + "~":
            self.assertEqual(play.status("/?token=" + wrong), 401)
        self.assertEqual(play.status("/state?token=" + TOKEN), 401, "the token belongs to the page alone")
        self.assertEqual(play.command({"action": "pause"}), 401)
        with play.watch() as viewer:
            self.assertIn(b" 401 ", viewer.recv(100))

    def test_the_token_as_a_header_and_as_a_cookie(self):
        play = self.play(token=TOKEN)
        for scheme in ("Bearer", "bearer"):
            self.assertEqual(play.status("/state", Authorization=f"{scheme} {TOKEN}"), 200)
        status, headers, text = play.ask("/?token=" + TOKEN)
        self.assertEqual(status, 200)
        self.assertNotIn(TOKEN, text + str(headers))
        cookie = headers["Set-Cookie"]
        self.assertIn("HttpOnly", cookie)
        self.assertIn("SameSite=Strict", cookie)
        pair = cookie.split(";")[0]
        for path in PATHS[:8]:
            self.assertIn(play.status(path, Cookie=f"a=b; {pair}; c=d"), (200, 503), path)
        for wrong in ("x" + pair, pair[:-1], self.play(token=TOKEN).ask("/?token=" + TOKEN)[1]["Set-Cookie"].split(";")[0]):
            self.assertEqual(play.status("/state", Cookie=wrong), 401, "another run's, too")

    def test_other_names_for_loopback_are_sent_away(self):
        play = self.play()
        for status, hosts in ((200, ("localhost", "localhost:9", f"127.0.0.1:{play.port}", "[::1]:80", "[::1]")),
                              (421, ("", "evil.example", "127.0.0.1.evil.example:8080", "localhost.evil:80", "10.0.0.1", "[::2]:80"))):
            for host in hosts:
                for path in ("/", "/state", "/metrics"):
                    self.assertEqual(play.status(path, Host=host), status, host)

    def test_pages_of_other_sites_can_ask_for_nothing(self):
        play = self.play()
        own = f"http://127.0.0.1:{play.port}"
        command = {"action": "pause"}
        for origin in ("http://evil.example", "null", f"http://127.0.0.1:{play.port + 1}"):
            self.assertEqual(play.command(command, Origin=origin), 403)
        self.assertEqual(play.command(command, Content_Type="text/plain"), 403)
        self.assertEqual(play.status("/control", "POST", json.dumps(command), Content_Type="application/json"), 403)
        self.assertEqual(play.status("/control"), 405)
        self.assertEqual(play.status("/control", "OPTIONS", Origin="http://evil.example"), 403)
        with play.watch(Origin="http://evil.example") as viewer:
            self.assertIn(b" 403 ", viewer.recv(100))
        self.assertFalse(play.state()["controls"]["pause_asked"])
        self.assertEqual(play.command(command, Origin=own, Content_Type="Application/JSON; charset=utf-8"), 202)
        self.assertTrue(play.state()["controls"]["pause_asked"])

    def test_head_is_get_without_a_body(self):
        play = self.play(token=TOKEN)
        self.assertEqual(play.status("/state", "HEAD"), 401)
        for path in PATHS[-5:]:  # endless ones
            self.assertEqual(play.status(path, "HEAD", Authorization="Bearer " + TOKEN), 200, path)
        for path in (*PATHS[:-5], "/control", "/nothing"):
            asked = [play.ask(path, method, Authorization="Bearer " + TOKEN) for method in ("GET", "HEAD")]
            self.assertEqual((asked[1][0], asked[1][1].keys(), asked[1][2]), (asked[0][0], asked[0][1].keys(), ""), path)

    def test_no_path_is_a_file(self):
        play = self.play()
        for path in ("/../../etc/passwd", "/..%2f..%2fetc/passwd", "/etc/passwd", "//etc/passwd", "/app.js/",
                     "/picture/", "/picture/../state", "/picture/input.jpg", "/index.html", "/%00", "/APP.JS",
                     "http://127.0.0.1/state"):
            self.assertEqual(play.status(path), 404, path)
        self.assertEqual(play.status("/state", "DELETE"), 405)

    def test_events_serve_snapshots_and_nothing_else(self):
        folder = Path(self.folder())
        (folder / "secret.txt").write_text("x")
        snapshots = folder / "snapshots"
        play = self.play(snapshots=snapshots)
        self.assertEqual(play.events(), [])
        play.tell("event local")
        event = self.wait_for(play.events)[0]
        self.assertEqual((event["reason"], event["box"], event["size"], event["this_run"], event["mark"]),
                         ("local", [10, 20, 16, 12], [64, 64], True, None))
        self.assertEqual(event["time"], 1767322346)
        status, headers, _ = play.ask(event["picture"])
        self.assertEqual((status, headers["Content-Type"]), (200, "image/png"))
        (snapshots / "secret.png").write_text("x")
        (snapshots / event["name"].replace("frame-1", "frame-2")).symlink_to(folder / "secret.txt")
        for path in ("../secret.txt", "..%2fsecret.txt", "secret.png", "seen.json", event["name"] + "/", event["name"][:-3] + "json",
                     event["name"].replace("frame-1", "frame-2"), f"x/../{event['name']}", f"%2e/{event['name']}", ""):
            self.assertEqual(play.status("/events/" + path), 404, path)

    def test_marks_are_commands(self):
        play = self.play(snapshots=self.folder())
        play.tell("event local")
        play.tell("event light")
        last, first = (event["picture"] for event in self.wait_for(lambda: play.events()[1:] and play.events()))
        seen = {"mark": "seen"}
        for refused, path, command, headers in (
                (403, first, seen, {"X_Millrace": ""}), (403, first, seen, {"Content_Type": "text/plain"}),
                (403, first, seen, {"Origin": "http://evil.example"}), (404, first + "x", seen, {}), (400, first, {"mark": "bad"}, {}),
                (400, first, {}, {}), (400, first, [], {}), (400, "/events", {"mark": "normal"}, {}), (409, first, {"mark": "normal"}, {})):
            self.assertEqual(play.order(path, command, **headers), refused, (path, command, headers))
        self.assertEqual({"count": 2, "unseen": 2, "teachable": True}.items() - play.state()["events"].items(), set())
        self.assertEqual(play.order(last, {"mark": "normal"}), 202)
        self.assertEqual(play.order("/events", seen), 202)
        self.assertEqual([event["mark"] for event in play.events()], ["normal", "seen"])
        self.assertEqual(play.state()["novelty"]["taught"], [1, 2])
        self.assertEqual(play.status("/events", "DELETE"), 405)


class Texts(PlayTest):

    def test_dashboard_and_alert_rules_ask_for_metrics_that_there_are(self):
        play = self.play()
        self.wait_for(lambda: play.tell()[0] > 20)
        _, headers, text = play.ask("/metrics")
        self.assertTrue(headers["Content-Type"].startswith("text/plain; version=0.0.4"))
        values = re.findall(r"^(millrace_\w+)((?:\{.*\})?) \S+$", text, re.M)
        lines = [line for line in text.splitlines() if line[0] != "#"]
        self.assertEqual(len(set(values)), len(lines), "each has one value")
        for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M):
            self.assertEqual(kind == "counter", name.endswith("_total"), name)
        there = {}  # the labels of each metric
        for name, labels in values:
            there.setdefault(name, {"instance"}).update(re.findall(r'(\w+)="', labels))
        board = json.loads((MONITORING / "grafana-dashboard.json").read_text())
        # Grafana's required fields of a dashboard, its panels, variables and annotations:
        # kinds/dashboard/dashboard_kind.cue.
        self.assertTrue(board["uid"] and board["title"])
        self.assertIsInstance(board["schemaVersion"], int)
        self.assertEqual(len({panel["id"] for panel in board["panels"]}), len(board["panels"]))
        cells = [(x, y) for at in (panel["gridPos"] for panel in board["panels"])
                 for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]
        self.assertEqual((len(set(cells)), max(cells)[0]), (len(cells), 23), "no panel lies on another")
        for panel in board["panels"]:
            self.assertTrue(panel["type"] and panel["title"] and panel["datasource"]["uid"])
            self.assertEqual(len({target["refId"] for target in panel["targets"]}), len(panel["targets"]))
            for target in panel["targets"]:
                name, = re.findall(r"millrace_\w+", target["expr"])
                used = re.findall(r"(\w+)=~", target["expr"]) + re.findall(r"{{(\w+)}}", target["legendFormat"])
                self.assertLessEqual(set(used), there[name], target)
        for item, keys in (("templating", ("name", "type")), ("annotations", ("name", "datasource", "enable", "iconColor", "expr"))):
            for one in board[item]["list"]:
                self.assertLessEqual(set(keys), one.keys())
        rules = MONITORING / "prometheus-alerts.yml"
        others = [json.dumps(board["templating"]), board["annotations"]["list"][0]["expr"], rules.read_text()]
        self.assertLessEqual(set(re.findall(r"millrace_\w+", " ".join(others))), there.keys())
        if promtool := shutil.which("promtool"):
            checked = subprocess.run([promtool, "check", "rules", rules], capture_output=True, text=True)
            self.assertEqual(checked.returncode, 0, checked.stderr)

    def test_openapi_tells_of_every_path_and_command(self):
        play = self.play()
        api = json.loads(play.ask("/openapi.json")[2])
        served = {path for path in PATHS[1:] if path.count(".") == 0} - {"/live"}
        told = {path.replace("{name}", name).replace("{event}", "NAME") for path in api["paths"]
                for name in ("input", "target", "prediction", "error", "camera")}
        self.assertEqual(told - {"/control", "/label", "/openapi.json"}, served)
        for path in ("/control", "/label", "/events", "/events/{event}"):
            answers = {"202", "400", "403"} | ({"500"} if path.startswith("/events") else {"404"})
            self.assertLessEqual(answers, api["paths"][path]["post"]["responses"].keys(), path)
        commands = api["paths"]["/control"]["post"]["requestBody"]["content"]["application/json"]
        offered = set(play.state()["controls"]["offered"])
        self.assertEqual(set(commands["examples"]) - {"resume", "label", "forget"}, offered - {"labels"})
        for name, example in commands["examples"].items():
            self.assertEqual(play.command(example["value"]), 202, name)

    def test_a_failure_for_a_moment_does_not_freeze_the_page(self):
        play = self.play()
        self.wait_for(lambda: play.status("/healthz") == 200)
        play.tell("fail")
        time.sleep(1)  # it looks four times
        trained = play.tell("work")[0]
        self.wait_for(lambda: play.state()["frames"]["trained"] > trained)
        self.assertEqual(play.status("/healthz"), 200)

    def test_no_answer_names_a_password(self):
        play = self.play()
        play.change(stream=AWAY)
        for path in ("/", "/state", "/history", "/metrics", "/healthz"):
            self.assertNotIn("secret", play.ask(path)[2], path)
        self.assertIn("***@camera.example", play.ask("/state")[2])

    def test_each_picture_is_a_stream(self):
        play = self.play()
        for name in ("input", "target", "prediction", "error", "camera"):
            with play.connect() as viewer:
                viewer.sendall(f"GET /picture/{name} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                stream = viewer.makefile("rb")
                self.assertIn(b" 200 ", stream.readline())
                pictures = set()
                while len(pictures) < 3:
                    line = stream.readline()
                    self.assertTrue(line, "the stream ended")
                    if line.startswith(b"Content-Length: "):
                        stream.readline()
                        picture = stream.read(int(line.split()[1]))
                        self.assertEqual((picture[:3], picture[-2:]), (b"\xff\xd8\xff", b"\xff\xd9"))
                        pictures.add(picture)

    def test_the_websocket_brings_states_and_pictures(self):
        play = self.play()
        with play.watch() as viewer:
            trained, samples = [], []
            for is_text, body in itertools.islice(messages(viewer), 500):
                if is_text:
                    trained.append(json.loads(body)["frames"]["trained"])
                else:
                    samples.append(int.from_bytes(body[:8], "little"))
                if len(samples) > 10 and trained and trained[-1] > trained[0]:
                    break
        self.assertGreater(trained[-1], trained[0])
        self.assertGreater(len(samples), 10)
        self.assertEqual(samples, sorted(set(samples)))


class Limits(PlayTest):
    def test_requests_are_bounded(self):
        play = self.play()
        for request in (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20000,
                        b"GET /" + b"x" * 20000 + b" HTTP/1.1\r\n\r\n",
                        b"POST /control HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1000000,
                        b"nonsense\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00"):
            with play.connect() as client:
                client.sendall(request)
                self.assertTrue(client.recv(100).startswith(b"HTTP/1.1 400 "), request[:40])
        self.assertEqual(play.status("/state"), 200)

    def test_connections_that_drip_keep_nobody_out(self):
        play = self.play(token=TOKEN)
        drips = [play.connect() for _ in range(300)]
        answered = 0
        for i in range(83):
            for one in drips[i::83]:
                try:
                    one.sendall(b"GET / HTTP/1.1\r\nHost: "[i % 20:][:1] or b"x")
                except OSError:  # it was let go; another comes in its place
                    one.close()
                    drips[drips.index(one)] = play.connect()
            answered += play.status("/healthz", Authorization="Bearer " + TOKEN) in (200, 503)
        self.assertEqual(answered, 83)
        for one in drips:
            one.close()

    def test_health_has_a_place_whoever_else_is_there(self):
        play = self.play()
        pipeline = 40 * f"GET /dygraph.js HTTP/1.1\r\nHost: 127.0.0.1:{play.port}\r\n\r\n".encode()

        def asks_much():
            one = play.connect(buffer=4096)
            one.sendall(pipeline)
            return one
        for come in (play.watch, asks_much):  # viewers that stay, and those who never read their answers
            with self.subTest(come):
                crowd = []
                for _ in range(256):
                    crowd.append(come())
                    crowd[-1].recv(1)  # it is connected, or was refused
                for _ in range(20):
                    self.assertIn(play.status("/healthz"), (200, 503))
                for one in crowd:
                    one.close()

    def test_commands_by_the_thousand_take_no_memory(self):
        play = self.play()
        play.command({"action": "resume"})
        before = play.memory()
        connection = http.client.HTTPConnection("127.0.0.1", play.port, timeout=10)
        for _ in range(3000):
            connection.request("POST", "/control", '{"action": "resume"}',
                               {"Content-Type": "application/json", "X-Millrace": "control"})
            self.assertEqual(connection.getresponse().read(), b'{"accepted": true}')
        connection.close()
        self.assertLess(play.memory() - before, 16 << 20)

    def read_for_a_while(self, play):
        with play.watch() as viewer:
            heard = messages(viewer)
            self.assertEqual(len([next(heard) for _ in range(30)]), 30)

    def test_viewers_who_never_read_cost_nothing_and_are_let_go(self):
        play = self.play()
        self.read_for_a_while(play)  # the first picture loads codecs
        before = play.memory()
        stalled = [play.watch(buffer=4096) for _ in range(STALLED)]
        slow = play.connect()  # a request that never ends
        slow.sendall(b"GET / HTTP/1.1\r\nHost: ")
        self.wait_for(lambda: play.state()["viewers"] >= STALLED)

        def nobody_is_ready():
            trained, shown = play.tell()
            time.sleep(0.5)
            later = play.tell()
            return later[0] > trained + 5 and later[1] == shown
        self.wait_for(nobody_is_ready)  # training goes on, and has no picture to give
        self.assertGreaterEqual(play.state()["viewers"], STALLED, "they are still there")
        self.assertLess(play.memory() - before, 32 << 20)

        self.read_for_a_while(play)  # one who reads is served as ever
        self.assertEqual(play.status("/healthz"), 200)

        self.wait_for(lambda: play.state()["viewers"] == 0)
        self.assertEqual(slow.recv(100), b"")
        for one in [*stalled, slow]:
            one.close()

    def test_it_ends_though_viewers_stay(self):
        with Play() as play:
            viewers = [play.watch(buffer=4096) for _ in range(5)]
            self.wait_for(lambda: play.state()["viewers"] == 5)
        self.assertEqual(play.process.returncode, 0)
        for one in viewers:
            one.close()
