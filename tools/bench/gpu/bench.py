"""The GPU benchmark: `bench.py GPU_BENCH OUT`.

Asks our program and PyTorch's side for one figure after another, the most important first. Before each it writes
OUT/gpu.json and its page OUT/gpu.md, so that results survive an early end. Measurements that take too long are stopped,
and reported as such.
"""
import argparse
import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
import pages  # noqa: E402
from measuring import Asked, Failure  # noqa: E402

# Name, network, width, height, target in milliseconds per step.
NETWORKS = [("10x16 k5", {}, 128, 128, 0.200),
            ("3-32-32-32-3 k3", {"layers": 4, "features": 32, "kernel": 3}, 128, 96, 0.084),
            ("ResNet-18", {"preset": "resnet18"}, 64, 64, None),
            ("10x16 k5", {}, 32, 32, 0.049),
            ("10x48 k5", {"features": 48}, 32, 32, 0.161),
            ("10x16 k15", {"kernel": 15}, 32, 32, None),
            ("30x16 k5", {"layers": 30}, 128, 128, None),
            ("10x16 k5", {}, 16, 16, 0.040),
            ("10x48 k5", {"features": 48}, 128, 128, 1.21),
            ("10x16 k5", {}, 64, 64, 0.105),
            ("10x16 k5", {}, 256, 256, 0.614),
            ("ResNet-18", {"preset": "resnet18"}, 224, 224, None),
            ("10x16 k5", {}, 512, 512, 2.12)]
SMALL = [("2x4 k3", {"layers": 2, "features": 4, "kernel": 3}, 16, 12, 0.001)]
PRECISIONS = "float32", "tf32", "bf16"


OURS = "ours"  # key of our program; PyTorch's have their network's name and width


class TimeIsUp(Exception):
    pass


class Bench:

    def __init__(self, options):
        self.out, self.device, self.end = Path(options.out), options.device, time.monotonic() + options.seconds
        self.log = open(self.out / "gpu-bench.log", "w")
        self.program, self.asked, self.results = options.gpu_bench, {}, {"suite": "gpu", "networks": []}
        self.results["provenance"] = self.ask(OURS, 60, arm="provenance")

    def start(self, name):
        command = [self.program] if name == OURS else [sys.executable, "-B", HERE.parent / "pytorch_step.py"]
        self.asked[name] = Asked(*command, stderr=self.log, start_new_session=True)

    def stop(self, name):
        process = self.asked.pop(name).process
        with contextlib.suppress(ProcessLookupError):  # already gone
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def ask(self, name, limit, **question):
        """Saves the results so far. A program that ended or was too slow is restarted for the next question."""
        self.keep()
        limit = min(limit, self.end - time.monotonic())
        if limit < 5:
            raise TimeIsUp
        print(question, file=self.log, flush=True)
        if name not in self.asked:
            self.start(name)
        try:
            return self.asked[name].ask(limit, **question)
        except Failure as failure:
            self.stop(name)
            return {"error": str(failure).partition(" at {")[0]}

    def keep(self):
        whole = self.out / "gpu.json.new"
        whole.write_text(json.dumps(self.results, indent=1) + "\n")
        whole.replace(self.out / "gpu.json")
        (self.out / "gpu.md").write_text(pages.page(self.results))

    def step(self, row, precision):
        row["ours"][precision] = self.ask(OURS, 90, arm="step", precision=precision, seconds=0.3, turns=1, **self.of(row))

    def pytorch(self, row, precision, ways, limit=30):
        for way in ways:
            row["pytorch"][f"{precision}, {way}"] = self.ask((row["name"], row["width"]), limit, way=way, precision=precision,
                                                             seconds=0.3, device=self.device, **self.of(row))

    def engine(self, arm, row, stages=1, seconds=0.5, turns=3):
        found = self.ask(OURS, 90, arm=arm, stages=stages, seconds=seconds, turns=turns, **self.of(row))
        self.results.setdefault(arm, []).append({**self.named(row), "stages": stages, **found})

    def kernels(self, row, precision="float32"):
        found = self.ask(OURS, 60, arm="kernels", precision=precision, **self.of(row))
        self.results.setdefault("kernels", []).append({**self.named(row), "precision": precision, **found})

    def tensor_cores(self, row):
        for precision in PRECISIONS[1:]:
            self.step(row, precision)
            self.pytorch(row, precision, ("benchmark", "channels_last"))

    @staticmethod
    def of(row):
        return {key: row[key] for key in ("network", "width", "height")}

    @staticmethod
    def named(row):
        return {key: row[key] for key in ("name", "width", "height")}

    def run(self, networks):
        rows = self.results["networks"]
        for name, network, width, height, aim_ms in networks:
            rows.append({"name": name, "network": network, "width": width, "height": height, "aim_ms": aim_ms, "ours": {},
                         "pytorch": {}})
            self.start((name, width))  # a process each, which loads while others work
        for row in rows:
            self.step(row, "float32")
        for row in rows[:2]:
            self.engine("stages", row, stages=4)
        self.engine("processor time", rows[0])
        for stages in 1, 4:
            self.engine("latency", rows[0], stages=stages, seconds=2)
        self.results["device"] = self.ask((rows[0]["name"], rows[0]["width"]), 40, seconds=0.2)
        for row in rows[:3]:
            self.kernels(row)
        for row in rows:
            self.pytorch(row, "float32", ("deterministic", "benchmark"))
        for row in rows[:7]:
            self.tensor_cores(row)
        for row in rows[:2]:
            self.engine("profile", row, turns=1)
        for row in rows[2:3] + rows[5:7]:
            self.pytorch(row, "float32", ("compile",), limit=90)
        for row in rows[7:]:
            self.tensor_cores(row)
        for precision in PRECISIONS:
            for row in rows[3 if precision == "float32" else 0:7]:
                self.kernels(row, precision)
        for precision in PRECISIONS:
            for row in rows:
                if f"{precision}, compile" not in row["pytorch"]:
                    self.pytorch(row, precision, ("compile",), limit=90)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gpu_bench")
    parser.add_argument("out")
    parser.add_argument("--seconds", type=float, default=450)
    parser.add_argument("--device", default="cuda", help="PyTorch's")
    parser.add_argument("--small", action="store_true", help="one tiny network: to rehearse")
    options = parser.parse_args()
    bench = Bench(options)
    try:
        bench.run(SMALL if options.small else NETWORKS)
    except TimeIsUp:
        bench.results["cut_off_after_s"] = options.seconds
    bench.keep()
    for name in list(bench.asked):
        bench.stop(name)
    return "error" in bench.results["provenance"]


if __name__ == "__main__":
    sys.exit(main())
