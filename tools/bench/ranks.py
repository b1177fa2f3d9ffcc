"""`millrace bench ranks`: the cost of several processes, measured with `millrace run` under mpirun and alone."""

import shutil
import sys

from measuring import HERE, Failure, OtherLoad, call, in_turns, median_ratio, medians

MICROBATCHES, FEWEST = 4, 48  # FEWEST: frames of a run
# By kind of arm: the figure that ours is compared with.
AGAINST = {"handoff": "bare_ms", "step": "one_process_ms", "pytorch": "pytorch_ms", "delay": "predicted_ms"}


def even_cut(stages):
    """The cut of the network `basic`: equal numbers of its 20 modules."""
    return [2 * (stage * 10 // stages) for stage in range(1, stages)]


def settings(schedule, stages, size):
    return {"source.uri": "synth:shapes", "source.pace": "asap", "source.width": size, "source.height": size,
            "task.kind": "autoencode", "model.preset": "partime-cnn",
            "model.layers": 10, "model.features": 16, "model.kernel": 5, "correction.kind": "none", "guard.kind": "none",
            "optimizer.kind": "sgd", "optimizer.lr": 0.01, "pipeline.capture": "graph", "pipeline.schedule": schedule,
            "pipeline.microbatches": MICROBATCHES, "pipeline.stages": stages, "pipeline.cut": even_cut(stages)}


def over(hosts, delay_ms, ranks):
    """The command prefix that runs a program on `ranks` ranks and `hosts` hosts (0: this one, shared memory)."""
    if ranks == 1:
        return []
    if hosts == 0:
        return ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--quiet", "-n", ranks]
    return [sys.executable, HERE / "hosts.py", hosts, "--ranks", ranks, "--delay-ms", delay_ms, "--"]


def ms_a_frame(report):
    return 1e3 * report["run"]["duration_s"] / report["frames"]["trained"]


def steady_ms_a_frame(whole, start):
    """Without the time to start, fill and drain, which `start` has as well."""
    return (1e3 * (whole["run"]["duration_s"] - start["run"]["duration_s"])
            / (whole["frames"]["trained"] - start["frames"]["trained"]))


class Bench:
    def __init__(self, machine, options):
        self.machine, self.options = machine, options
        self.seconds = options.seconds * (1 if options.quick else 4)
        self.frames, self.bytes = {}, {}  # by arm
        self.lacks_hosts = ""
        try:
            call(*over(2, 0.1, 2), "true")
        except Failure as failure:
            self.lacks_hosts = str(failure)
            print(f"no hosts on this machine, so none are measured: {self.lacks_hosts}", file=sys.stderr)

    def arms(self):
        sizes, quick = self.options.sizes or [16, 32, 64], self.options.quick
        size = (self.options.sizes or [64])[-1]

        def arm(kind, name, size, schedule="sequential", place="shared memory", hosts=0, delay_ms=0.0, ranks=2):
            return {"arm": f"{name}, {size} px", "kind": kind, "schedule": schedule, "place": place, "size": size, "hosts": hosts,
                    "delay_ms": delay_ms, "ranks": ranks}

        arms = [arm("handoff", f"hand-off, {place}", each, place=place, hosts=hosts)
                for each in sizes for place, hosts in (("shared memory", 0), ("veth", 2))]
        arms += [arm("step", f"{schedule}, 2 ranks", size, schedule)
                 for schedule in ("partime", "gpipe", "1f1b") if not quick or schedule == "gpipe"]
        arms += [arm("pytorch", f"{schedule}, PyTorch", size, schedule) for schedule in ("gpipe", "1f1b") if self.options.pytorch]
        arms += [arm("delay", f"{schedule}, {ms:g} ms", size, schedule, f"{ms:g} ms", 4, ms, 4)
                 for ms in (1.0, 5.0) for schedule in ("partime", "pipedream", "gpipe", "1f1b")
                 if not quick or (schedule == "1f1b" and ms == 1)]
        wanted = [arm for arm in arms if self.options.arms in arm["arm"] and not (arm["hosts"] and self.lacks_hosts)]
        if not wanted:
            raise Failure(f'--arms: no arm has "{self.options.arms}" in its name', 2)
        return wanted

    def learn(self, arm, ranks, stages=None, frames=None, schedule=None, hosts=None):
        place = over(arm["hosts"] if hosts is None else hosts, arm["delay_ms"], ranks)
        chosen = settings(schedule or arm["schedule"], stages or arm["ranks"], arm["size"])
        return self.machine.run(chosen, frames or self.frames_of(arm), place)

    def frames_of(self, arm):
        """As many frames as fill the turn, in whole minibatches."""
        if arm["arm"] not in self.frames:
            fits = 1e3 * self.seconds / ms_a_frame(self.learn(arm, arm["ranks"], frames=FEWEST))
            # Many more than FEWEST if those are subtracted again.
            least = FEWEST * (8 if arm["kind"] == "delay" else 1)
            self.frames[arm["arm"]] = max(least, int(min(fits, 1e5)) // 16 * 16)
        return self.frames[arm["arm"]]

    def turn(self, arm, _):
        return getattr(self, arm["kind"])(arm)

    def handoff(self, arm):
        """The mean of both directions, in which a clock offset cancels."""
        links = [link for rank in self.learn(arm, 2)["ranks"] for link in rank["links"]
                 if link["carries"] in ("activation", "gradient")]
        if len(links) != 2:
            raise Failure(f"two links were to be timed, not {len(links)}")
        size = self.bytes[arm["arm"]] = links[1]["bytes"]
        bare, cold = map(float, call(*over(arm["hosts"], arm["delay_ms"], 2),
                                     self.machine.millrace.with_name("ranks_ping_pong"), size).split())
        link = self.machine.link
        in_process = link["latency_ms"] + (size / link["bytes_per_ms"] if link["bytes_per_ms"] else 0)
        return {"ours_ms": (links[0]["ms"] + links[1]["ms"]) / 2, "bare_ms": bare / 1e3, "bare_cold_ms": cold / 1e3,
                "in_process_ms": in_process}

    def step(self, arm):
        return {"one_process_ms": ms_a_frame(self.learn(arm, 1)), "ours_ms": ms_a_frame(self.learn(arm, 2))}

    def pytorch(self, arm):
        theirs = call(self.options.pytorch, HERE / "pytorch_ranks.py", arm["size"], MICROBATCHES, self.seconds,
                      arm["schedule"])
        return {"ours_ms": ms_a_frame(self.learn(arm, 2)), "pytorch_ms": float(theirs)}

    def delay(self, arm):
        """Compared with the simulator's prediction from stages measured here and a message between two such hosts."""
        message = self.message_ms(arm)
        ranks = arm["ranks"]
        predicted = self.machine.predict(
            arm={"network": "basic", "size": arm["size"], "schedule": arm["schedule"], "stages": ranks,
                 "microbatches": MICROBATCHES, "cut": even_cut(ranks), "capture": "graph"},
            seconds=self.seconds / 4, delay_ms=arm["delay_ms"], message_ms=message)
        ours = steady_ms_a_frame(self.learn(arm, ranks), self.learn(arm, ranks, frames=FEWEST))
        return {"predicted_ms": predicted["predicted_ms"], "stages_ms": predicted["stages_ms"], "message_ms": message,
                "ours_ms": ours}

    def message_ms(self, arm):
        """A message's cost besides the delay: CPU work, as hosts on one machine have no cable. Taken from a frame of
        `sequential`, which waits for two messages over two hosts and for none in one process."""
        def steady(ranks):
            return steady_ms_a_frame(*(self.learn(arm, ranks, 2, frames, "sequential", 2) for frames in (5 * FEWEST, FEWEST)))

        return max(0.0, (steady(2) - steady(1)) / 2 - arm["delay_ms"])


def ranks(machine, options):
    if not shutil.which("mpirun"):
        raise Failure("bench ranks: no mpirun here")
    bench, rounds = Bench(machine, options), 1 if options.quick else options.rounds
    arms, others = bench.arms(), OtherLoad(machine)
    rows = []
    for arm, figures in in_turns(arms, rounds, bench.turn):
        row = {key: arm[key] for key in ("arm", "kind", "schedule", "place", "size", "ranks")}
        if arm["arm"] in bench.bytes:
            row["bytes"] = bench.bytes[arm["arm"]]
        rows.append({**row, **medians(figures), "ratio": median_ratio(figures["ours_ms"], figures[AGAINST[arm["kind"]]])})
    return {"rounds": rounds, "microbatches": MICROBATCHES, "lacks_hosts": bench.lacks_hosts,
            "others_cores": others.cores(), "arms": rows, "threads": 2}
