"""A run at an MQTT broker, read as Home Assistant reads it: https://www.home-assistant.io/integrations/mqtt."""

import json
import re
import shutil
import signal
import subprocess
import sys
import unittest

import jinja2

import program
from servers import free_port, listens

sys.path.append(str(program.ROOT / "demos/compose"))
import home  # noqa: E402


class Home(home.Home):
    """The stand-in of demos/compose, which also chooses and presses."""

    def __init__(self, test):
        self.port = test.port
        super().__init__(f"127.0.0.1:{test.port}")
        test.addCleanup(self.process.communicate)
        test.addCleanup(self.process.kill)
        self.send("subscribed", "1", "-r")
        test.wait_until(lambda: "subscribed" in self.latest)

    def controls(self):
        return json.loads(self.text("door/cam 1/state"))["controls"]

    def send(self, topic, text, *options):
        subprocess.run(["mosquitto_pub", "-p", str(self.port), "-t", topic, "-m", text, *options], check=True)

    def press(self, name):
        button = self.entities()["button", name]
        self.send(button["command_topic"], button["payload_press"])

    def choose(self, name, value):
        select = self.entities()["select", name]
        self.send(select["command_topic"], jinja2.Template(select["command_template"]).render(value=value))


@unittest.skipUnless(shutil.which("mosquitto_sub") and shutil.which("mosquitto", path="/usr/sbin:/usr/bin"), "no mosquitto")
class Mqtt(program.CliTest):
    def setUp(self):
        super().setUp()
        self.port = free_port()
        (self.folder / "mosquitto.conf").write_text(f"listener {self.port} 127.0.0.1\nallow_anonymous true\n")

    def broker(self):
        process = self.spawn(["/usr/sbin/mosquitto", "-c", self.folder / "mosquitto.conf"])
        self.wait_until(lambda: listens(self.port))
        return process

    def home(self):
        """One that listens at a broker."""
        self.broker()
        return Home(self)

    def config(self, **tables):
        return self.write(program.merged(program.bare({
            "source": {"uri": "synth:shapes", "width": 16, "height": 16, "pace": "live", "fps": 50.0},
            "model": {"layers": 2, "features": 4, "kernel": 3}, "pipeline": {"stages": 1},
            "checkpoint": {"dir": self.folder / "kept"}, "mqtt": {"broker": f"mqtt://127.0.0.1:{self.port}", "topic_prefix": "door/cam 1"}}),
            tables))

    def test_the_gallerys_camera_is_a_device_of_14_entities(self):
        home = self.home()
        self.succeed("run", program.ROOT / "demos/home-assistant/door.toml", "--frames", 20, *program.sets(
            "source.uri=synth:shapes", f"mqtt.broker=mqtt://127.0.0.1:{self.port}", f"checkpoint.dir={self.folder}",
            f"novelty.snapshots={self.folder}"))
        self.wait_until(lambda: len(home.entities()) == 14)
        self.assertRegex(home.page(), r"sensor<td>Loss<td>0\.\d+.*")

    def test_home_assistant_finds_shows_and_steers_a_run(self):
        home = self.home()
        run = self.start_run(self.config())
        self.wait_until(lambda: home.text("door/cam 1/state"))
        self.wait_until(lambda: re.match("[0-9.]*[1-9]", home.shows("sensor", "Loss")), "no loss, or none above 0")
        self.assertEqual(home.text("door/cam 1/availability"), "online")
        self.wait_until(lambda: home.shows("sensor", "Real time") == "holds")
        self.wait_until(lambda: float(home.shows("sensor", "Frame rate")) > 1)
        self.assertEqual((home.shows("binary_sensor", "Something new"), home.shows("binary_sensor", "Camera")), ("OFF", "ON"))
        entities = home.entities()
        self.assertEqual(len({entity["unique_id"] for entity in entities.values()}), len(entities))
        for entity in entities.values():
            self.assertEqual((entity["availability_topic"], entity["device"]["identifiers"]),
                             ("door/cam 1/availability", ["door_cam_1_aee63a626755e2d6"]))
        for button, key, value in (("Pause", "paused", True), ("Resume", "paused", False), ("Save", "saves", 1)):
            home.press(button)
            self.wait_until(lambda: home.controls()[key] == value)
        home.send("door/cam 1/control", '{"action": "paws"}')
        self.read_until(run, 'mqtt: door/cam 1/control: expected "pause"')
        del home.latest["door/cam 1/availability"]
        home.send("door/cam 1/availability", "offline", "-r")  # as a broker does for a connection that it gives up
        self.wait_until(lambda: home.text("door/cam 1/availability") == "online")
        self.stop(run, signal.SIGTERM)
        self.wait_until(lambda: home.text("door/cam 1/availability") == "offline")

    def test_a_label_is_taught(self):
        home = self.home()
        run = self.start_run(self.config(task={"kind": "label", "labels": "http", "classes": ["day", "night"], "loss": "cross-entropy"},
                                         model={"preset": "auto"}))
        self.wait_until(lambda: ("select", "It shows") in home.entities() and home.text("door/cam 1/state"))
        self.assertEqual(home.entities()["select", "It shows"]["options"], ["day", "night"])
        home.choose("It shows", "night")
        self.wait_until(lambda: home.shows("select", "It shows") == "night")
        self.wait_until(lambda: home.shows("sensor", "Answer") == "night")
        self.assertGreater(float(home.shows("sensor", "Probability")), 50)
        self.assertEqual(home.shows("sensor", "Accuracy"), "None", "no class has come back yet")
        home.choose("It shows", "nigth")
        self.assertIn("night", self.read_until(run, "mqtt: door/cam 1/control: "))
        self.assertEqual(home.shows("select", "It shows"), "night")
        for word, text, part in (("paus", "", 'the nearest is "pause"'), ("label", "dy", 'the nearest is "day"'),
                                 ("label", "\n" * 9999, "a label is JSON"), ("learning_rate", "fast", "must be a number"),
                                 ("save/now", "", 'the nearest is "save"')):
            home.send("door/cam 1/control/" + word, text)
            self.assertIn(part, self.read_until(run, f"mqtt: door/cam 1/control/{word}: "))
        self.assertEqual((home.controls()["label"], home.controls()["pause_asked"]), ("night", False))
        home.send("door/cam 1/control/label", "day")
        self.wait_until(lambda: home.shows("select", "It shows") == "day")
        home.send("door/cam 1/control/learning_rate", "0.5")
        self.wait_until(lambda: home.controls()["learning_rate"] == 0.5)
        home.send("door/cam 1/control/pause", "")
        self.wait_until(lambda: home.controls()["paused"])
        self.stop(run, signal.SIGTERM)
        self.start_run(self.config())
        self.wait_until(lambda: ("select", "It shows") not in home.entities(), "the select of a run with classes stays")
        self.assertNotIn(("sensor", "Accuracy"), home.entities())

    def test_an_event_is_told_and_its_picture_shown(self):
        home = self.home()
        uri = program.write_frames(self.folder / "frames", program.frames_with_an_event(slice(340, None)))
        self.succeed("run", self.config(source={"uri": uri, "pace": "asap", "fps": 10.0}, novelty={"minimum": 1,
            "snapshots": self.folder / "shots", "mqtt": f"mqtt://127.0.0.1:{self.port}", "topic": "alerts/door"}))
        self.wait_until(lambda: home.text("alerts/door"))
        self.assertEqual(json.loads(home.text("alerts/door"))["event"], 1)
        self.assertIn("event", home.entities()["image", "Last event"]["image_topic"])
        self.wait_until(lambda: home.latest.get("door/cam 1/event", b"").startswith(b"\x89PNG"))

    def test_a_dead_run_is_offline_and_a_broker_may_come_late_and_go(self):
        # The name may have an address at which nobody listens, too.
        run = self.ends(program.start("run", self.config(mqtt={"broker": f"mqtt://localhost:{self.port}", "discovery_prefix": ""})))
        away = f"mqtt: mqtt://localhost:{self.port}: "
        self.read_until(run, away)
        broker = self.broker()
        home = Home(self)
        self.wait_until(lambda: home.text("door/cam 1/state"))
        self.assertEqual(home.entities(), {})
        broker.terminate()
        logs = [broker.communicate()[1]]
        self.read_until(run, away)
        broker = self.broker()
        home = Home(self)
        self.wait_until(lambda: home.text("door/cam 1/availability") == "online")
        run.kill()
        self.wait_until(lambda: home.text("door/cam 1/availability") == "offline")
        broker.terminate()
        logs.append(broker.communicate()[1])
        first, second = (re.findall(" as (millrace[^ ]*)", log) for log in logs)
        self.assertEqual(first, second, "a broker would keep the lost connection beside the new one")
        self.assertEqual(len(first), 1)
