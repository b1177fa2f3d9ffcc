"""Config and command line: defaults, ranges and places in errors; completion and the man page, asked as shells ask."""

import functools
import os
import pathlib
import re
import tomllib

import program

# Values refused where bad_values() has none: in a file, and last by --set.
BAD = {
    "source.roi": [[1, 2, 3], [0, 0, 0, 4], [-1, 0, 4, 4], "0,0,4,4"], "source.channels": [2, 0, "3"],
    "model.kernel": [4, -1, 65, 3.0], "correction.kernel": [4, -1, 65, 3.0], "model.freeze": ["a", [1], [""], 2],
    "pipeline.devices": ["gpu", [], [0]], "pipeline.threads": [0, [], [1, 0], "two"], "replay.share": [-0.5, "often", 1.0],
    "novelty.zones": [[[[0, 0], [1, 0]]], [[[0, 0], [2, 0], [1, 1]]], [{"name": "no points"}], "all"],
    "novelty.ignore": [[[[0, 0], [0.001, 0], [0, 0.001]]], [[0, 0], [1, 0], [1, 1]], 3],
}

# The contract's, with and without a config file: those that learn on the street scene.
DEFAULTS = {
    "source": {"uri": f"file://{program.VIDEO}", "pace": "auto", "drop": "auto", "width": 128, "height": 96,
               "fit": "stretch", "roi": [], "channels": 3, "loop": False},
    "task": {"kind": "next-frame", "context": 2, "loss": "mse"},
    "model": {"preset": "auto", "layers": 4, "features": 32, "kernel": 3, "out_channels": 3, "weights": "",
              "seed": 0},
    "pipeline": {"schedule": "partime", "stages": 2, "cut": [], "devices": "auto", "microbatches": 4,
                 "virtual_stages": 2, "vertical_sync": False, "capture": "auto"},
    "optimizer": {"kind": "adam", "lr": 0.001, "momentum": 0.0},
    "correction": {"kind": "auto"},
    "guard": {"kind": "roll-back"},
    "monitor": {"fps": 0.0, "policy": "drop"},
    "checkpoint": {"dir": "", "every": 0, "resume": False},
    "output": {"report": "", "weights": ""},
}

# None of these is a default; together they make a config that can run.
OTHERS = {
    "source": {"uri": "synth:shapes", "pace": "asap", "drop": "newest", "width": 16384, "height": 0, "fit": "pad",
               "roi": [1, 2, 3, 4], "channels": 1,
               "fps": 12.5, "loop": True, "seed": 10**12},
    "task": {"loss": "l1", "horizon": 3, "context": 3, "predict": "change"},
    "model": {"layers": 3, "features": 1, "kernel": 63, "out_channels": 1, "seed": 5},
    "pipeline": {"schedule": "sequential", "stages": 3, "cut": [2, 4], "devices": ["cpu:0", "cpu:0", "cpu:0"],
                 "microbatches": 65536, "virtual_stages": 1, "vertical_sync": True,
                 "threads": [1, 1, 1]},
    "optimizer": {"kind": "adamw", "lr": 1000.0, "momentum": 1.0, "weight_decay": 0.25, "beta1": 0.0, "beta2": 0.5,
                  "alpha": 0.75, "eps": 1e-3, "schedule": "cosine", "step_size": 9, "gamma": 0.25, "T_max": 77,
                  "eta_min": 0.5, "clip": 0.25, "warmup": 3, "start_factor": 0.5, "orthogonal": 0.5},
    "correction": {"kind": "inverse-age"},
    "guard": {"kind": "none"},
    "replay": {"kind": "hard", "size": 7, "share": 0.25},
    "monitor": {"fps": 29.97, "policy": "skip"},
    "novelty": {"threshold": 5.5, "minimum": 3, "cooldown": 60.0, "clip_seconds": 2.5, "snapshots": "shots", "webhook": "http://host:8080/x", "topic": "a/b",
                "reasons": ["local"], "zones": [{"points": [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]], "name": "door", "sensitivity": 2.0}]},
    "checkpoint": {"dir": "a folder", "every": 7},
    "output": {"report": "r", "weights": "w", "loss_plot": "l.png", "prediction": "é\t.png", "log": "-",
               "log_every": 7},
}
# Every key that neither of them has.
MORE = """plugins source.uris source.reconnect source.silence_s source.max_pixels task.labels task.classes task.masks task.stream
task.teacher task.with_input model.norm model.activation model.slope model.file model.freeze model.memory_format model.learn
pipeline.replicas pipeline.ranks pipeline.tensor pipeline.recompute pipeline.convolution pipeline.precision pipeline.kernels
correction.anneal correction.lambda correction.decay correction.kernel correction.rate correction.weight correction.step
correction.inputs novelty.ignore novelty.mqtt mqtt.broker mqtt.topic_prefix mqtt.discovery_prefix checkpoint.damaged
output.video output.sinks"""


def bad_values(path, told):
    """Values of that key that must be refused, where `told` is its range: in a file, and last by --set."""
    if path in BAD:
        return BAD[path]
    if told.startswith("one of "):
        return [told.split("'")[1] + "x", 0]
    if bounds := re.fullmatch(r"a (whole )?number from (\S+) to (\S+)", told):
        whole, least, most = bounds.groups()
        return [int(least) - 1, int(most) + 1, 2.5] if whole else [float(least) - 1e-6, 1.001 * float(most), "fast"]
    if told.startswith("a list of whole numbers"):
        return [[-1], ["2"], 2]
    return {"text": [3, ["a"]], "a path or URI": [3, ["a"]], "a list of texts": [[3], "a"], "true or false": [1, "yes"]}[told]


def described(text):
    """What `check --keys` tells of each key: a line "key = default", then indented lines, of a key's range the last."""
    told, path = {}, ""
    for line in text.splitlines():
        if not line.startswith(" "):
            path = line.split(" = ")[0]
        told.setdefault(path, []).append(line)
    return told


class Keys(program.CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.told = described(program.call("check", "--keys").out)
        cls.layers = cls.told.pop("model.layer")
        cls.bad = {path: bad_values(path, lines[-1].strip()) for path, lines in cls.told.items()}

    def test_every_key_and_layer_is_told_of(self):
        named = {f"{table}.{key}" for tables in (DEFAULTS, OTHERS) for table, keys in tables.items() for key in keys}
        self.assertEqual(self.told.keys(), named | set(MORE.split()))
        self.assertTrue(any(line.startswith("    conv: ") for line in self.layers))
        self.assertTrue(any(line.startswith("        kernel = ") for line in self.layers))

    def test_bad_values_in_a_file(self):
        bad = [(path, value) for path, values in self.bad.items() for value in values[:-1]]
        files = [self.bad_file(number, *pair) for number, pair in enumerate(bad)]
        self.assert_each_refused((("check", file), f"millrace: error: {file}:3:5: {path}") for file, (path, _) in zip(files, bad))

    def bad_file(self, number, path, value):
        """The key in line 3, column 5."""
        table, _, key = path.rpartition(".")
        file = self.folder / f"{number}.toml"
        file.write_text(f"# a comment\n{f'[{table}]' if table else ''}\n    {key} = {program.toml_value(value)}\n")
        return file

    def test_bad_values_by_set(self):
        told = [(path, program.toml_value(values[-1])) for path, values in self.bad.items()]
        told += [("optimizer.lr", value) for value in ("nan", "inf", "true", "1e999")]
        self.assert_each_refused((("check", "--set", f"{path}={value}"), f"millrace: error: --set {path}: ") for path, value in told)


class Values(program.CliTest):
    def test_defaults_are_the_same_with_and_without_a_file(self):
        file = self.folder / "empty.toml"
        file.write_text("# nothing\n")
        outcome = self.succeed("check", file)
        self.assertIn(f"{file} is empty", outcome.err)
        self.assertEqual(program.call("check").out, outcome.out)
        self.assert_shown(outcome, DEFAULTS)

    def test_good_values_in_a_file_and_by_set(self):
        conv = {"type": "conv", "out": 3, "kernel": 3}
        layers = {"model": {"preset": "layers", "layer": [conv, {"type": "leaky-relu", "slope": 0.25}, conv]}}
        for tables in (OTHERS, layers):
            for words in ((self.write(tables),), program.settings(tables)):
                outcome = self.succeed("check", *words)
                self.assert_shown(outcome, tables)
            self.assert_checks_alike(outcome)

    def assert_shown(self, outcome, tables):
        shown = tomllib.loads(outcome.out)  # what would run are comments
        for table, keys in tables.items():
            for key, value in keys.items():
                self.assertEqual(shown[table][key], value, f"{table}.{key}")

    def assert_checks_alike(self, first):
        """What `check` prints is a config of the same."""
        file = self.folder / "again.toml"
        file.write_text(first.out)
        self.assertEqual(program.call("check", file).out, first.out.replace(", the default, since none is set", ""))

    def test_what_check_says_of_settings(self):
        """(settings, what is printed, what is not)"""
        for settings, *parts in (
                (["optimizer.lr=0.0005", "monitor.fps=100000", "optimizer.beta1=0.3"],  # as people write numbers
                 ["\nlr = 0.0005\n", "\nfps = 100000.0\n", "\nbeta1 = 0.3\n", "\nbeta2 = 0.999\n", "\neps = 1e-08\n"], []),
                (["task.kind=next-frame"], ["#   correction deep-supervision (auto): "], ["would also", "learns best"]),
                (["task.kind=autoencode", "optimizer.kind=sgd"],
                 ["#   correction inverse-age (auto): ", "schedule \"sequential\" learns best", "#   deep-supervision would also "], []),
                (["correction.kind=local"], [], ["would also"]), (["pipeline.schedule=gpipe"], [], ["would also"]),
                (["pipeline.schedule=pipedream"], [], ["would also"]), (["model.preset=resnet18"], [], ["would also"]),
                (["source.fit=stretch"], ["#   pictures of another shape than 128x96 are squashed"], []),
                (["source.fit=crop"], ["128x96 lose their edges"], []), (["source.fit=pad"], ["128x96 get black bars"], []),
                (["novelty.webhook=http://u:hunter2@h/x?token=hunter2", "output.video=rtsp://u:hunter2@127.0.0.1:1/x"],
                 ["h/x", "127.0.0.1:1/x"], ["hunter2"]),
                (["model.norm=instance", "model.activation=leaky-relu", "task.kind=autoencode"], [], []),
                (["source.uri=images:/a b/%05d.png?x=1"], ["\nuri = 'images:/a b/%05d.png?x=1'\n"], [])):  # a bare word
            with self.subTest(settings):
                outcome = self.succeed("check", *program.sets(*settings))
                self.assertRegex(outcome.out, r"^# source .*\n# would run: ", "the answer comes before the keys")
                for expected, those in zip((True, False), parts):
                    for part in those:
                        self.assertEqual(part in outcome.out, expected, part)
        for kind in ("next-frame", "autoencode"):
            self.assert_checks_alike(program.call("check", "--set", f"task.kind={kind}"))

    def test_a_default_source_is_said_to_be_one(self):
        self.assertIn("vtest.avi, the default, since none is set\n", program.call("check").out)
        told = self.succeed("run", "--set", "source.width=16", "--set", "source.height=12", "--frames", "3")
        self.assertIn("source: not set, using the default, ", told.err)
        self.assertRegex(told.out, r"(?m)^source    .*vtest.avi$")

    def test_set_wins_over_the_file_and_the_last_over_the_first(self):
        file = program.write_toml(self.folder / "config.toml", {"model": {"layers": 3, "features": 5}})
        self.assert_shown(program.call("check", file, *program.sets("model.layers=4", "model.layers=6")), {"model": {"layers": 6, "features": 5}})


class Mistakes(program.CliTest):
    def refused(self, text, *parts, command="check"):
        file = self.folder / "config.toml"
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        outcome = program.call(command, file)
        self.assert_refused(program.BAD_USAGE, outcome, f"millrace: error: {file}:", *parts)
        return outcome

    def test_where_a_file_is_wrong(self):
        for text, *parts in (
                ("\n [soruce]\nwidth = 3\n", ":2:", "[soruce]", "source"),
                ("[source]\n  widht = 3\n", ":2:3: ", "source.widht", "source.width"),
                ("source = 3\n", ":1:1: source"), ("source.width = -1\n", ":1:8: source.width"),
                ("source = { width = -1 }\n", ":1:12: source.width"),
                ('[source]\npace = """a\nb"""\n', ":2:1: source.pace", "asap"),  # on one line
                ("[source]\nwidth =\n", ":2:"), ("[source]\nwidth = 3\nwidth = 4\n", ":3:"),
                (b"[source]\nuri = \"\xff\xfe\"\n", ":2:"),
                # A file that says nothing has 7 modules, 2 stages.
                ("[pipeline]\nstages = 9\n", ":2:1: pipeline.stages", "7"), ("[pipeline]\ncut = [8]\n", ":2:1: pipeline.cut"),
                ("[pipeline]\ncut = [0]\n", ":2:1: pipeline.cut"), ("[pipeline]\ncut = [3, 4]\n", ":2:1: pipeline.cut"),
                ("[pipeline]\nstages = 3\ncut = [4, 3]\n", ":3:1: pipeline.cut"),
                *((f"[pipeline]\ndevices = {devices}\n", ":2:1: pipeline.devices") for devices in (
                    '["cpu:0"]', '["cpu:0", "cpu:4095"]', '["cpu:0", "xpu:0"]'))):
            with self.subTest(text):
                self.refused(text, *parts)
        self.refused("[soruce]\n", ":1:2", command="run")

    def test_what_a_setting_gets_wrong(self):
        """(key=value, what its error holds)"""
        zone = '{nam = "a", points = [[0, 0], [1, 0], [1, 1]]}'
        sources = (("rtps://host/x", "rtsp"), ("ftp://host/x", "synth"), ("synth:nosuch", "synth:shapes"),
                   ("synth:shapes?scenes=-1", "scenes"), ("images:%s%s%n/%d.png", "folder"), ("rtsp://[::1", "no host"),
                   ("http://h:99999/x", "65535"))
        bad = [("source.width", "--set"), ("", "--set"), ("=3", "--set"), ("width=3", "--set"),
               ("optimizer.momentmu=3", "the nearest is optimizer.momentum"),
               ("optimizer.learning_rate=3", "the nearest is optimizer.lr"), ("lr=3", "the nearest is optimizer.lr"),
               ("novelty.zones=[[[0, 0], [1, 0]]]", "error: --set novelty.zones: a polygon needs"),
               (f"novelty.zones=[{zone}]", "error: --set novelty.zones: unknown key nam; the nearest is name"),
               ("novelty.webhook=https://u:secret@host/", "novelty.webhook", "http://"),
               ("novelty.webhook=host", "novelty.webhook", "http://[USER:PASSWORD@]HOST"),
               ("novelty.webhook=http://[::1", "novelty.webhook", "no host"),
               ("novelty.webhook=http://h:0", "novelty.webhook", "65535"),
               ("novelty.mqtt=localhost", "novelty.mqtt", "mqtt://[USER:PASSWORD@]HOST[:PORT]"),
               ("novelty.mqtt=http://host", "novelty.mqtt"), ("novelty.mqtt=mqtt://host:x", "novelty.mqtt"),
               ("mqtt.broker=u:secret@h", "mqtt.broker", "mqtt://"), ("mqtt.topic_prefix=", "mqtt.topic_prefix"),
               *((f"{key}={topic}", key, "without + and #")
                 for key in ("novelty.topic", "mqtt.topic_prefix", "mqtt.discovery_prefix")
                 for topic in ("a/+/b", "a/#", "$SYS/x")),
               *((setting, setting.split("=")[0], "applies only to partime-cnn; the preset is residual-cnn")
                 for setting in ("model.norm=instance", "model.activation=leaky-relu")),
               *((f"source.uri={uri}", "source.uri", part) for uri, part in sources)]
        self.assert_each_refused((("check", "--set", setting), *parts) for setting, *parts in bad)
        self.assert_each_refused(
            (("check", "--set", "task.kind=stream", "--set", f"task.stream={uri}"), "task.stream", part) for uri, part in sources)

    def test_what_a_command_line_gets_wrong(self):
        self.assert_each_refused((
            (("rnu",), '"rnu"', '"run"'), (("chekc", "config.toml"), '"check"'), (("inspct", "--help"), '"inspect"'),
            (("run", "--fames", "3"), "--fames; the nearest is --frames"), (("run", ""), "config:"),
            (("check", "a.toml", "b.toml"), "b.toml"), (("check", "--set"),), (("--fast", "run"),),
            (("run", "--set", "source.width=8", "source.height=8"), "source.height=8"),  # it takes one each time
            (("--completion", "tcsh"), "tcsh"),
            *((("run", path), f"error: {path}: ") for path in (self.folder / "none.toml", self.folder))))

    def test_keys_that_do_not_go_together(self):
        """(tables, what the error holds)"""
        sized = {"source": {"uri": "synth:shapes", "width": 24, "height": 16}}
        conv = {"type": "conv", "out": 3, "kernel": 3}
        halved = {"model": {"preset": "layers", "layer": [{**conv, "stride": 2}, {"type": "upsample"}, conv]}}
        replicated = {"pipeline": {"schedule": "pipedream", "stages": 2, "replicas": [2, 1]}}
        pipedream = {"pipeline": {"schedule": "pipedream", "stages": 2}}
        for tables, *parts in (
                ({"checkpoint": {"every": 5}}, "checkpoint.dir"),
                ({"replay": {"share": 0.5}}, "replay.share", "needs replay.kind"),
                ({"replay": {"kind": "recent", "size": 1 << 24}}, "replay.size", "GB"),
                ({"pipeline": {"stages": 1}, "monitor": {"policy": "recut"}}, "monitor.policy", "pipeline.stages"),
                ({**replicated, "monitor": {"policy": "recut"}}, "monitor.policy", "pipeline.replicas"),
                *(({"model": model}, "config.toml:", "model.") for model in (
                    {"preset": "layers"}, {"layer": [conv]}, {"preset": "resnet18", "layer": [conv]})),
                ({**sized, **halved, "correction": {"kind": "local"}}, "config.toml", "module 0"),
                ({"correction": {"kind": "spike-compensation"}}, "config.toml", "sgd with momentum"),
                ({**pipedream, "correction": {"kind": "weight-prediction"}}, "config.toml", "stashed weights"),
                ({"pipeline": {"schedule": "2bw", "stages": 1}, "correction": {"kind": "discrepancy"}},
                 "config.toml", "stashed weights"),
                ({**replicated, "correction": {"kind": "local"}}, "config.toml", "replicated"),
                ({**pipedream, "correction": {"kind": "deep-supervision"}}, "config.toml", "partime and pb"),
                ({"pipeline": {"threads": 2, "capture": "eager"}}, "config.toml:", "threads", "runs no step program"),
                ({"pipeline": {"threads": [1, 1, 1]}}, "config.toml:", "threads", "3 counts, pipeline.stages is 2"),
                ({"pipeline": {"threads": 1000}}, "config.toml:", "threads", "usable cores")):
            with self.subTest(tables):
                self.assert_refuses("check", tables, *parts)

    def test_what_is_too_large_for_a_config(self):
        self.assert_refused(program.BAD_USAGE, program.call("check", "/dev/zero"), "/dev/zero: is larger than")
        layers = "".join("[[model.layer]]\ntype = \"relu\"\n" for _ in range(5000))
        self.refused("[task]\nkind = \"autoencode\"\n[model]\npreset = \"layers\"\n" + layers, "5000 modules, at most 4096")

    def test_a_precision_that_the_cores_do_not_have(self):
        self.refused("[pipeline]\nprecision = \"tf32\"\n", ":2:1: pipeline.precision", "tf32 is for GPUs; CPU stages use float32")
        tiles = "amx_bf16" in pathlib.Path("/proc/cpuinfo").read_text()
        text = "[pipeline]\nprecision = \"bf16\"\n"
        if not tiles:
            self.refused(text, ":2:1: pipeline.precision", "bf16 needs cores with tiles")
            return
        file = program.write_toml(self.folder / "tiles.toml", {"pipeline": {"precision": "bf16"}})
        self.assertEqual(program.call("check", file).code, program.DONE)
        self.refused(text + "capture = \"eager\"\n", ":2:1: pipeline.precision", "bf16 is for step programs")

    def test_a_network_larger_than_memory_says_what_is_missing_and_what_would_fit(self):
        layers = [{"type": "conv", "out": 64, "kernel": 3}, {"type": "conv", "out": 3, "kernel": 3}]  # 1.1 GB a sample
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        config = {"source": {"width": 2048, "height": 2048}, "task": {"kind": "autoencode"},
                  "model": {"preset": "layers", "layer": layers},
                  "pipeline": {"stages": 1, "schedule": "gpipe", "microbatches": int(2 * there / 1e9)}}
        self.assert_refuses("check", config, "model.preset: the network takes at least", "more than there is; pipeline.recompute = true")

    def test_bad_frames(self):
        for frames in ("-1", "many", "1.5"):
            outcome = program.call("run", f"--frames={frames}")
            self.assert_refused(program.BAD_USAGE, outcome, "--frames")
            self.assertLess(len(outcome.err), 200, "a range of 300 digits helps nobody")


# Sets bash's variables before completion, and prints its answer.
ASK_BASH = """
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_millrace
printf '%s\\n' "${COMPREPLY[@]}"
"""


@functools.cache
def printed(*options):
    """What the program prints for these, asked once: most of such a call is start-up."""
    outcome = program.call(*options)
    assert outcome.code == program.DONE, outcome
    return outcome.out


class OptionText(program.CliTest):
    def offered_by_bash(self, *words):
        """What bash would offer for the last of the words."""
        script = self.folder / "millrace.bash"
        script.write_text(printed("--completion", "bash"))
        return program.output_of("bash", "--norc", "-c", ASK_BASH, "bash", script, "millrace", *words).split()

    def test_commands_and_options_of_the_command_alone(self):
        """(words; what is among the offers for the last; what is not)"""
        for words, some, others in ((("",), {"run", "check", "inspect", "schedule", "bench"}, set()),
                                    (("run", "--"), {"--set", "--frames", "--report", "--quiet"}, {"--keys"}),
                                    (("check", "--"), {"--keys"}, {"--frames"}), (("--",), {"--version"}, {"--keys"}),
                                    (("run", "my.toml", "--set", "source."), {"source.uri=", "source.width="}, {"model.seed="})):
            offered = set(self.offered_by_bash(*words))
            self.assertLessEqual(some, offered, words)
            self.assertFalse(others & offered, words)

    def test_every_key_is_offered(self):
        keys = [line.split(" = ")[0] for line in printed("check", "--keys").splitlines() if line[0] != " "]
        keys.remove("model.layer")  # tables, which only a file can hold
        self.assertEqual(self.offered_by_bash("run", "--set", ""), [key + "=" for key in keys])

    def test_values_of_keys_and_options(self):
        # Bash splits at "=". Numbers and files have no words to offer.
        for words, offers in ((("run", "--set", "source.pace", "="), ["auto", "live", "asap"]),
                              (("run", "--set", "pipeline.schedule", "=", "pi"), ["pipedream"]),
                              (("run", "--set", "source.loop", "=", "t"), ["true"]),
                              (("run", "--set", "source.pace=l"), ["source.pace=live"]), (("schedule", "part"), ["partime"]), (("sch",), ["schedule"]),
                              (("schedule", "--format", "g"), ["grid"]), (("schedule", "--format", "=", "c"), ["csv"]),
                              (("run", "--frames", ""), []), (("run", "--report", ""), [])):
            self.assertEqual(self.offered_by_bash(*words), offers, words)

    def test_man_page_has_options_keys_and_every_layer(self):
        text = printed("--man").replace("\\-", "-").replace("\\fB", "").replace("\\fR", "")
        for part in ("millrace run", "--frames", "pipeline.schedule", "zb-h1", "EXIT STATUS", "source.uri"):
            self.assertIn(part, text)
        told = printed("check", "--keys").split("model.layer = []", 1)[1]
        types = re.findall(r"^    (\S+): ", told, re.M)
        self.assertIn("transposed-conv", types)
        for name in types:
            self.assertIn(f"\n.TP\n{name}\n", text)
        for key in re.findall(r"^        (.*)", told, re.M):
            self.assertIn(f"\n.br\n{key}\n", text)
        self.assertRegex(printed("run", "--help"), r"--set table\.key=value +A key")

    @program.needs("man")
    def test_man_page_has_no_warnings(self):
        told = program.output_of("man", "--warnings", "-l", "-", input=printed("--man"))
        self.assertNotIn("warning", told)
        self.assertIn("pipeline.schedule = 'partime'", told)
