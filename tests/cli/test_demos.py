"""The demos: that they are short, told of, and do what their READMEs say, as far as no camera is needed."""

import functools
import importlib.util
import re
import sys
import unittest

from program import MILLRACE, ROOT, VIDEO, CliTest, needs, output_of, sets
from servers import free_port, listens, needs_rtsp

DEMOS = ROOT / "demos"


class Demos(CliTest):
    def test_each_is_short_and_has_a_readme(self):
        demos = [path for path in DEMOS.iterdir() if path.is_dir()]
        self.assertEqual({demo.name for demo in demos}, {"hello", "file", "webcam", "two-cameras", "drift", "embedded", "plugins",
                                                        "river", "compose", "unexpected", "teacher", "home-assistant", "notebook"})
        gallery = (DEMOS / "README.md").read_text()
        for demo in demos:
            readme = (demo / "README.md").read_text()
            for part in ["**What you see:**", "## The command", "## What to try next"]:
                self.assertIn(part, readme, demo.name)
            self.assertIn(f"{demo.name}/README.md", gallery)
            for path in demo.iterdir():
                if path.suffix in {".cpp", ".py", ".sh", ".toml", ".service"}:
                    self.assertLess(len(path.read_text().splitlines()), 100, path)
        self.assertLess(len((DEMOS / "hello/main.cpp").read_text().splitlines()), 25)

    def test_a_box_goes_on_from_its_last_checkpoint(self):
        """test_faults.py cuts the power."""
        settings = sets("source.uri=synth:shapes", "source.width=32", "source.height=24", "source.pace=asap",
                        f"checkpoint.dir={self.folder}", "output.report=", "output.loss_plot=", "output.prediction=")
        for resumed in (False, True):
            report, _ = self.reported("run", DEMOS / "embedded/embedded.toml", *settings, "--quiet", "--frames", 60)
            self.assertEqual("resumed" in report["run"], resumed)

    @needs("systemd-analyze")
    def test_unit_is_accepted_exposes_little_and_asks_for_real_time_and_no_other_privilege(self):
        text = (DEMOS / "embedded/millrace.service").read_text()
        unit = self.folder / "millrace.service"
        unit.write_text(text.replace("/usr/local/bin/millrace", MILLRACE))
        self.assertEqual(output_of("systemd-analyze", "verify", "--man=no", unit), "")
        output_of("systemd-analyze", "security", "--offline=true", "--threshold=15", DEMOS / "embedded/millrace.service")
        self.assertLessEqual({"CapabilityBoundingSet=", "AmbientCapabilities=", "NoNewPrivileges=yes", "LimitRTPRIO=20"},
                             set(text.splitlines()))

    @unittest.skipUnless((ROOT / "build/release/millrace").exists(), "install.sh installs the release build, which is not here")
    def test_install_lays_out_all_that_the_unit_names(self):
        root = self.folder / "root"
        install = functools.partial(output_of, DEMOS / "embedded/install.sh", env={"DESTDIR": str(root)})
        install()
        unit = (root / "etc/systemd/system/millrace.service").read_text()
        program, config = re.search(r"^ExecStart=(\S+) run (\S+)", unit, re.M).groups()
        for path in [program, config]:
            self.assertTrue((root / path[1:]).exists(), path)
        kept = root / config[1:]
        kept.write_text("# the user's own\n")
        install()
        self.assertEqual(kept.read_text(), "# the user's own\n")


@unittest.skipUnless(importlib.util.find_spec("yaml"), "no PyYAML")
class Compose(CliTest):
    FOLDER = DEMOS / "compose"

    def setUp(self):
        super().setUp()
        import yaml
        self.read = yaml.safe_load
        self.whole = self.read((self.FOLDER / "compose.yaml").read_text())
        self.contents = {name: config["content"] for name, config in self.whole["configs"].items()}

    def test_what_it_names_exists_and_its_parts_agree(self):
        services = self.whole["services"]
        named = {"configs": set(), "secrets": set()}
        for name, service in services.items():
            build = service.get("build")
            if build is None:
                self.assertRegex(service["image"], ":", f"{name}: of which version")
            elif isinstance(build, str):
                self.assertTrue((self.FOLDER / build / "Dockerfile").exists(), name)
            else:
                for file in re.findall(r"^COPY (.*) \S+$", build["dockerfile_inline"], re.M)[0].split():
                    self.assertTrue((self.FOLDER / build["context"] / file).exists(), file)
            for volume in service.get("volumes", []):
                source = volume.split(":")[0]
                self.assertTrue(source in self.whole["volumes"] or (self.FOLDER / source).is_file(), volume)
            named["configs"] |= {config["source"] for config in service.get("configs", [])}
            named["secrets"] |= set(service.get("secrets", []))
            self.assertLessEqual(set(service.get("depends_on", [])), set(services), name)
            for port in service.get("ports", []):
                self.assertTrue(port.startswith("127.0.0.1:"), f"{name}: others can reach it")
        for kind, names in named.items():
            self.assertEqual(names, set(self.whole[kind]))
        token = self.FOLDER / self.whole["secrets"]["token"]["file"]
        self.succeed("run", "synth:shapes", "--frames", "2", "--quiet", "--serve", "127.0.0.1:0", "--token-file", token)
        listens = {"prometheus": "9090", "broker": re.search(r"listener (\d+)", self.contents["broker"])[1],
                   **{name: re.search(r"\d+$", services[name]["command"][-1])[0] for name in ("camera", "home")},
                   "millrace": re.search(r"0\.0\.0\.0:(\d+)", " ".join(services["millrace"]["command"]))[1]}
        asked = re.findall(r"\b(%s):(\d+)" % "|".join(services), " ".join([*self.contents.values(), *services["home"]["command"]]))
        self.assertEqual(set(asked), {(name, listens[name]) for name in ("camera", "broker", "millrace", "prometheus")})

    def test_its_configs_are_valid(self):
        config = self.folder / "street.toml"
        config.write_text(self.contents["millrace"])
        self.succeed("check", config)
        scrape, = self.read(self.contents["prometheus"])["scrape_configs"]
        alerts = (ROOT / "tools/page/monitoring/prometheus-alerts.yml").read_text()
        self.assertIn(f'job="{scrape["job_name"]}"', alerts)
        paths = [config["target"] for service in self.whole["services"].values() for config in service.get("configs", [])]
        self.assertEqual(len(paths), len(set(paths)))
        for name in ("datasource", "dashboards"):
            self.assertEqual(self.read(self.contents[name])["apiVersion"], 1)

    @needs("ffmpeg")
    @needs_rtsp
    def test_its_camera_is_one_that_a_run_reads(self):
        port = free_port()
        self.spawn([sys.executable, self.FOLDER / "camera.py", VIDEO, port])
        self.wait_until(lambda: listens(port))
        self.reported("run", *sets(f"source.uri=http://127.0.0.1:{port}/", "source.width=16", "source.height=12"), "--frames", 15, trained=15)
