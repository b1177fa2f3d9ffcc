"""The benchmark of a machine with a GPU: `bench.py GPU_BENCH OUT`.

Asks our program and PyTorch's side for one figure after another, the most telling first. After each it writes OUT/gpu.json and
its page, OUT/gpu.md, so that what was measured stays whenever it ends. What takes too long is ended, and said so.
"""
import argparse
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
import pages  # noqa: E402

# Name, what the network is made of, width, height, and the milliseconds a step that are aimed at.
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
PEERS = ("float32, deterministic", "float32, benchmark", "tf32, benchmark", "tf32, channels_last", "bf16, benchmark",
         "bf16, channels_last")


class Asked:
    """A program that answers lines of JSON. One that ends, or is too slow, is started anew for the next question."""

    def __init__(self, command, log, greets=False):
        self.command, self.log, self.greets, self.process = command, log, greets, None

    def start(self):
        if self.process is None:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                            start_new_session=True)
        return self

    def line(self, limit):
        ready, _, _ = select.select([self.process.stdout], [], [], limit)
        line = self.process.stdout.readline() if ready else ""
        if line:
            return json.loads(line)
        self.end()
        return {"error": "ended by itself" if ready else f"stopped after {limit:.0f} s"}

    def ask(self, question, limit):
        begin, fresh = time.monotonic(), self.process is None
        self.start()
        if fresh and self.greets and "error" in (greeting := self.line(limit)):
            return greeting
        try:
            print(json.dumps(question), file=self.process.stdin, flush=True)
        except BrokenPipeError:
            self.end()
            return {"error": "ended by itself"}
        return self.line(limit - (time.monotonic() - begin))

    def end(self):
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


class TimeIsUp(Exception):
    pass


class Bench:

    def __init__(self, options):
        self.out, self.device, self.end = Path(options.out), options.device, time.monotonic() + options.seconds
        self.log = open(self.out / "gpu-bench.log", "w")
        self.ours = Asked([options.gpu_bench], self.log, greets=True)
        self.results = {"suite": "gpu", "provenance": self.ours.start().line(60), "networks": []}

    def ask(self, asked, limit, **question):
        left = self.end - time.monotonic()
        if left < 5:
            raise TimeIsUp
        print(question, file=self.log, flush=True)
        return asked.ask(question, min(limit, left))

    def keep(self):
        whole = self.out / "gpu.json.new"
        whole.write_text(json.dumps(self.results, indent=1) + "\n")
        whole.replace(self.out / "gpu.json")
        (self.out / "gpu.md").write_text(pages.page(self.results))

    def pytorch(self):
        return Asked([sys.executable, "-B", HERE / "peers.py", self.device], self.log)

    def network(self, network, width, height, name, aim_ms):
        """A step by us and by PyTorch, in every precision."""
        row = {"name": name, "width": width, "height": height, "aim_ms": aim_ms, "ours": {}, "pytorch": {}}
        self.results["networks"].append(row)
        of = {"network": network, "width": width, "height": height}
        peers = self.pytorch().start()  # loads meanwhile
        try:
            for precision in PRECISIONS:
                row["ours"][precision] = self.ask(self.ours, 60, arm="step", precision=precision, seconds=0.3, turns=1, **of)
                self.keep()
            if "device" not in self.results:
                self.results["device"] = self.ask(peers, 40, arm="device", seconds=0.2)
            for arm in PEERS:
                row["pytorch"][arm] = self.ask(peers, 30, arm=arm, seconds=0.3, **of)
                self.keep()
        finally:
            peers.end()

    def compiled(self, row, network, precision):
        peers = self.pytorch()
        try:
            row["pytorch"][f"{precision}, compile"] = self.ask(peers, 90, arm=f"{precision}, compile", seconds=0.3, network=network,
                                                               width=row["width"], height=row["height"])
        finally:
            peers.end()
        self.keep()

    def engine(self, arm, network, width, height, name, stages=1, seconds=0.5):
        found = self.ask(self.ours, 60, arm=arm, network=network, width=width, height=height, stages=stages, seconds=seconds, turns=3)
        self.results.setdefault(arm, []).append({"name": name, "width": width, "height": height, "stages": stages, **found})
        self.keep()

    def kernels(self, network, width, height, name, precision="float32"):
        found = self.ask(self.ours, 60, arm="kernels", network=network, width=width, height=height, precision=precision)
        self.results.setdefault("kernels", []).append(
            {"name": name, "width": width, "height": height, "precision": precision, **found})
        self.keep()

    def run(self, networks):
        every = [dict(zip(("name", "network", "width", "height", "aim_ms"), row)) for row in networks]
        bare = [{key: row[key] for key in ("name", "network", "width", "height")} for row in every]
        for row in every[:3]:
            self.network(**row)
        for row in bare[:2]:
            self.engine("stages", stages=4, **row)
        self.engine("processor time", **bare[0])
        for stages in 1, 4:
            self.engine("latency", stages=stages, seconds=3, **bare[0])
        for row in bare[:2]:
            self.engine("profile", **row)
        for row in bare[:3]:
            self.kernels(**row)
        for row in every[3:]:
            self.network(**row)
        for row in bare[3:7]:
            self.kernels(**row)
        for precision in PRECISIONS[1:]:
            for row in bare[:3]:
                self.kernels(precision=precision, **row)
        for precision in PRECISIONS:
            for row, of in zip(self.results["networks"], every):
                self.compiled(row, of["network"], precision)


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
    bench.ours.end()
    return "error" in bench.results["provenance"]


if __name__ == "__main__":
    sys.exit(main())
