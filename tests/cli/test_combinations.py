"""Random configs of many keys at once: what `check` accepts runs, with exact counts and twice to the same bits."""

import random

import program

COUNT = 1000 if program.LONG else 30
FRAMES = 24
MODULES = 6  # of three layers, at least


def some(chance, tables, *choices):
    """Sets some keys of (table, key, values), each to one of its values."""
    for table, key, values in choices:
        if chance.random() < 0.4:
            tables.setdefault(table, {})[key] = chance.choice(values)


def drawn(number, folder):
    """The tables of the number-th config."""
    chance = random.Random(number)
    stages = chance.choice((1, 2, 2, 3, 4))
    tables = {"source": {"uri": f"synth:shapes?frames={FRAMES}", "width": 16, "height": 12},
              "model": {"layers": 3, "features": 4, "kernel": 3},
              "pipeline": {"stages": stages, "cut": sorted(chance.sample(range(1, MODULES), stages - 1))}}
    some(chance, tables,
         ("source", "channels", (1, 3)), ("source", "fit", ("stretch", "crop", "pad")), ("source", "seed", (1, 7)),
         ("task", "kind", ("autoencode", "next-frame")), ("task", "loss", ("mse", "l1", "huber", "ssim")),
         ("task", "horizon", (1, 3)), ("task", "context", (1, 3)), ("task", "predict", ("change", "frame")),
         ("model", "preset", ("partime-cnn", "residual-cnn")), ("model", "norm", ("none", "instance", "group")), ("model", "activation", ("relu", "leaky-relu")),
         ("model", "memory_format", ("contiguous", "channels_last")), ("model", "freeze", (["0.*"], ["*.bias"], ["*"])),
         ("model", "features", (3, 16)), ("model", "kernel", (1, 5)),
         ("pipeline", "schedule", ("1f1b", "2bw", "gpipe", "interleaved", "partime", "pb", "pipedream", "sequential", "zb-h1")),
         ("pipeline", "microbatches", (1, 2, 3, 4, 8)), ("pipeline", "virtual_stages", (1, 2, 3)),
         ("pipeline", "vertical_sync", (True, False)), ("pipeline", "replicas", ([2, 1], [1, 2], [2, 2], [2])),
         ("pipeline", "recompute", (True, False)), ("pipeline", "capture", ("auto", "graph", "eager")),
         ("pipeline", "threads", (1, 2, [2, 1])),
         ("optimizer", "kind", ("adam", "adamw", "rmsprop", "sgd")), ("optimizer", "momentum", (0.5, 0.9)),
         ("optimizer", "weight_decay", (0.0, 0.01)), ("optimizer", "lr", (0.0, 0.001, 0.1)), ("optimizer", "beta1", (0.0, 0.5)),
         ("correction", "kind", ("none", "inverse-age", "pipemare", "discrepancy", "weight-prediction",
                                 "spike-compensation", "gap-aware", "dc-asgd", "local", "deep-supervision", "auto")),
         ("guard", "kind", ("none", "roll-back")),
         ("replay", "kind", ("recent", "reservoir", "hard")), ("replay", "size", (1, 8)), ("replay", "share", (0.3, 0.7)),
         ("monitor", "policy", ("drop", "skip")))
    had = lambda table, key: tables.get(table, {}).get(key)
    later = had("task", "kind") != "autoencode"
    partime = had("model", "preset") == "partime-cnn" or had("model", "preset") is None and not later
    for table, key, wanted in (("task", "horizon", later), ("task", "context", later), ("task", "predict", later),
                               ("model", "norm", partime), ("model", "activation", partime),
                               ("replay", "size", had("replay", "kind")), ("replay", "share", had("replay", "kind")),
                               ("pipeline", "replicas", had("pipeline", "schedule") == "pipedream")):
        if not wanted and chance.random() < 0.95:  # or most would be refused for the same few reasons
            tables.get(table, {}).pop(key, None)
    tables["output"] = {"weights": folder / "weights.safetensors", "report": folder / "report.json"}
    some(chance, tables, ("output", "log", (folder / "log.jsonl",)), ("output", "log_every", (1, 7)))
    if chance.random() < 0.5:
        tables["checkpoint"] = {"dir": folder / "kept", "every": chance.choice((0, 5))}
    return tables


class Combinations(program.CliTest):
    def run_in(self, folder, number):
        folder.mkdir()
        config = program.write_toml(folder / "config.toml", drawn(number, folder))
        return config, program.call("run", config, "--quiet")

    @program.each(*range(COUNT))
    def test_what_check_accepts_runs(self, number):
        folder = self.folder / str(number)
        config, outcome = self.run_in(folder, number)
        checked = program.call("check", config)
        if checked.code != program.DONE:
            self.assert_one_error(checked, "config.toml")
            self.assertEqual((outcome.code, outcome.err), (program.BAD_USAGE, checked.err))
            return
        self.assert_code(program.DONE, outcome)
        report = self.report(f"{number}/report.json")
        self.assertEqual(report["frames"]["dropped"], 0)
        again = self.folder / f"{number}-again"
        _, outcome = self.run_in(again, number)
        self.assert_code(program.DONE, outcome)
        self.assertEqual(program.tensors_of(again / "weights.safetensors"), program.tensors_of(folder / "weights.safetensors"))
        second = self.report(f"{number}-again/report.json")
        for same in ("frames", "loss", "updates", "gradient_age"):
            self.assertEqual(second[same], report[same], same)
        if (folder / "kept").exists():
            outcome = self.succeed("run", config, "--quiet", "--set", "checkpoint.resume=true")
            resumed = self.report(f"{number}/report.json")
            self.assertEqual(resumed["run"]["resumed"]["frames"], report["frames"]["trained"])
