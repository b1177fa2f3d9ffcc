"""`millrace bench framerate`, `pipeline`, `prediction`, `seeds` and `partime`: how long a pipeline's steps take."""

import subprocess
import sys

import partime_answers
import tables
from measuring import HERE, Failure, OtherLoad, in_turns, median, median_ratio, medians, progress

# The networks of the PARTIME paper's slides, as the engine's ModelSpec has them.
SHAPES = {"basic": (10, 16, 5), "layers": (30, 16, 5), "features": (10, 48, 5), "kernel": (10, 16, 15)}
NETWORKS = list(SHAPES)
SCHEDULES = ["sequential", "partime", "pb", "pipedream", "2bw", "gpipe", "1f1b", "interleaved", "zb-h1"]


# --- framerate ---

class PyTorch:
    """Another Python, which has torch, asked over pipes; it keeps what it has built."""

    def __init__(self, python):
        try:
            self.process = subprocess.Popen([python, HERE / "pytorch_step.py"], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, text=True)
        except OSError as error:
            raise Failure(f"--pytorch {python}: {error.strerror}", 2) from error

    def step_ms(self, network, size, mode, threads, seconds):
        """Median milliseconds of a training step; None where PyTorch can't."""
        preset, shape = ("resnet18", (0, 0, 0)) if network == "resnet18" else ("partime-cnn", SHAPES[network])
        print(preset, *shape, size, mode, threads, seconds, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise Failure("--pytorch: Python has gone; does it have torch?")
        try:
            return float(line)
        except ValueError:
            print(f"\rPyTorch, {mode} at {size}: {line}", end="", file=sys.stderr)
            return None


def framerate(machine, options):
    cases = [(network, size) for network in options.networks or NETWORKS for size in options.sizes or [32, 64]]
    if not options.networks and not options.sizes:  # those that the page has goals for
        cases = [("basic", 16), ("basic", 32), ("basic", 64), ("basic", 128), ("layers", 32), ("features", 32),
                 ("kernel", 32), ("resnet18", 64)]
    most = options.stages or machine.cores
    arms = []
    for network, size in cases:
        for capture in options.captures or ["auto"]:
            base = {"network": network, "size": size, "capture": capture,
                    "channels_last": options.memory_format == "channels_last"}
            several = [{**base, "stages": n} for n in range(1, most + 1)]
            for arm in several:
                about = machine.describe(arm=arm)
                arms.append({**arm, "cut": about["cut"]})
            if 1 < most <= machine.cores and about["programs"]:  # as many cores on one stage
                arms.append({**base, "stages": 1, "threads": [most]})
    modes = [(network, size, mode, 2**power) for network, size in cases
             for mode in ("eager", "channels_last", "compile") for power in range(machine.cores.bit_length())
             if options.pytorch]
    pytorch = PyTorch(options.pytorch) if options.pytorch else None

    def turn(arm, _):
        if isinstance(arm, tuple):
            return {"ms": pytorch.step_ms(*arm, options.seconds)}
        peak = machine.peak()
        figures = machine.turn(arm=arm, seconds=options.seconds)
        return {**figures, "fps": 1e3 / figures["step_ms"], "peak": peak}

    taken = in_turns([*arms, *modes], options.rounds, turn)
    ours, peers = list(zip(arms, taken)), list(zip(modes, taken[len(arms):]))
    results = {"suite": "framerate", "rounds": options.rounds, "seconds": options.seconds,
               "memory_format": options.memory_format, "arms": []}
    for arm, figures in ours:
        threads = arm.get("threads", [1])[0]
        if arm["stages"] == 1 and threads == 1:
            alone = median(figures["fps"])
        fps = median(figures["fps"])
        name = f"{arm['network']} {arm['size']} x{arm['stages']}" + (f"x{threads}" if threads > 1 else "")
        results["arms"].append(
            {"arm": name + (f" {arm['capture']}" if arm["capture"] != "auto" else ""), "network": arm["network"],
             "size": arm["size"], "stages": arm["stages"], "threads": threads, "capture": arm["capture"],
             "cut": arm.get("cut", []), "fps": fps, "speedup": fps / alone, "step_ms": 1e3 / fps,
             **medians(figures, "T_ms", "T_over_N_ms", "bottleneck_ms", "handoff_percent", "latency_p50_ms",
                       "latency_p99_ms")})
    if pytorch:
        peak = median([value for _, figures in ours for value in figures["peak"]])
        results["peak_gflops_a_core"] = peak / 1e9
        results["pytorch"] = [beside_pytorch(machine, network, size, capture, ours, peers, peak)
                              for network, size in cases for capture in options.captures or ["auto"]]
    results["provenance"] = machine.provenance(most)
    return results


def beside_pytorch(machine, network, size, capture, ours, peers, peak):
    """The most stages beside PyTorch's best mode and the limit: what the step's multiply-adds take on all cores."""
    mine = [(arm, figures) for arm, figures in ours if "threads" not in arm
            and (arm["network"], arm["size"], arm["capture"]) == (network, size, capture)]
    (one, alone), (widest, figures) = mine[0], mine[-1]
    modes = {f"{mode[2]} x{mode[3]}": None if None in found["ms"] else median(found["ms"])
             for mode, found in peers if mode[:2] == (network, size)}
    how, best = min(((name, ms) for name, ms in modes.items() if ms), key=lambda each: each[1], default=("", 0))
    step, flops = 1e3 / median(figures["fps"]), machine.flops(arm=one)
    limit = 1e3 * flops / (peak * machine.cores)
    over_peak = median([top / (fps * flops) for top, fps in zip(alone["peak"], alone["fps"])])
    return {"network": network, "size": size, "stages": widest["stages"], "capture": capture, "step_ms": step,
            "pytorch_ms": best, "pytorch_best": how, "pytorch": modes, "over_pytorch": best / step, "limit_ms": limit,
            "over_limit": step / limit, "one_stage_over_limit": over_peak}


# --- pipeline ---

def pipeline(machine, options):
    most = options.stages or machine.cores
    arms = [{"network": "basic", "size": size, "stages": n, "capture": "eager",  # as the bare loop beside it
             "channels_last": options.memory_format == "channels_last"}
            for size in options.sizes or [32, 64] for n in range(1, most + 1)]

    def turn(arm, _):
        figures = machine.turn(arm=arm, seconds=options.seconds)
        if arm["stages"] == 1:
            figures["bare_loop_ms"] = machine.bare_loop(arm=arm, seconds=options.seconds)
        return figures

    taken = in_turns(arms, options.rounds, turn)
    monitor = median([machine.monitor() for _ in range(options.rounds)])
    results = {"suite": "pipeline", "rounds": options.rounds, "seconds": options.seconds,
               "memory_format": options.memory_format, "monitor_ns": monitor, "arms": []}
    for arm, figures in zip(arms, taken):
        step = median(figures["step_ms"])
        if arm["stages"] == 1:
            alone = step
        row = {"arm": f"basic {arm['size']} x{arm['stages']}", "size": arm["size"], "stages": arm["stages"],
               "cut": machine.describe(arm=arm)["cut"], "step_ms": step, "speedup": alone / step,
               "engine_share_percent": median(figures["handoff_percent"]),
               "monitor_share_percent": 100e-6 * monitor / step}
        if "bare_loop_ms" in figures:
            row |= {"bare_loop_ms": median(figures["bare_loop_ms"]),
                    "step_over_bare": median_ratio(figures["step_ms"], figures["bare_loop_ms"])}
        results["arms"].append(row)
    results["provenance"] = machine.provenance(most)
    return results


# --- prediction ---

def cut_once(machine, arms):
    """The arms with their cuts: the same for all schedules with as many stages."""
    cuts = {}
    for arm in arms:
        place = arm["network"], arm["size"], arm["stages"]
        if place not in cuts:
            cuts[place] = machine.describe(arm=arm)["cut"]
        yield {**arm, "cut": cuts[place]}


def quietest(machine, ask):
    """What `ask` returns, and the cores that others took meanwhile. A disturbed turn is taken again, twice at most."""
    best = None
    for _ in range(3):
        others = OtherLoad(machine)
        answer = ask()
        best = min(filter(None, (best, (others.cores(), answer))), key=lambda each: each[0])
        if best[0] <= 0.05:
            break
    return best


def prediction(machine, options):
    own_size = {"basic": 64, "layers": 32, "features": 32, "kernel": 16}  # at which a step takes some milliseconds
    arms = list(cut_once(machine, [
        {"network": network, "size": size, "schedule": schedule, "capture": "eager",  # as modules are profiled
         "stages": workers * (2 if schedule == "interleaved" else 1)}
        for network in options.networks or NETWORKS for size in options.sizes or [own_size[network]]
        for workers in range(1, (options.stages or 2) + 1) for schedule in sorted(SCHEDULES)]))
    latency = []

    def turn(arm, number):
        if number == len(latency):
            machine.link = machine.machine()["link"]
            latency.append(machine.link["latency_ms"])
        beside, predicted = quietest(machine, lambda: machine.predict(arm=arm, seconds=options.seconds / 2,
                                                                      link=machine.link)["predicted_ms"])
        meanwhile, measured = quietest(machine, lambda: machine.turn(arm=arm, seconds=options.seconds / 2)["period_ms"])
        return {"predicted_ms": predicted, "measured_ms": measured, "ratio": predicted / measured,
                "others_cores": max(beside, meanwhile)}

    results = []
    for arm, figures in zip(arms, in_turns(arms, options.rounds, turn)):
        workers = machine.describe(arm=arm)["workers"]
        results.append({"arm": f"{arm['network']} {arm['size']} {arm['schedule']} x{workers}", "network": arm["network"],
                        "size": arm["size"], "schedule": arm["schedule"], "workers": workers, "stages": arm["stages"],
                        "cut": arm["cut"], **medians(figures)})
    return {"suite": "prediction", "rounds": options.rounds, "seconds": options.seconds,
            "link_latency_ms": median(latency), "goal": 0.05,
            "within": sum(abs(arm["ratio"] - 1) <= 0.05 for arm in results), "arms": results,
            "provenance": machine.provenance(2)}


# --- seeds ---

FLUSHING = ("gpipe", "1f1b", "interleaved", "zb-h1")
# A schedule, whether it recomputes, and what its paper says that stage i of N keeps with m samples a minibatch:
# samples between forward and backward, versions of the weights.
KEPT = [("sequential", False, "1", "1"), ("partime", False, "1", "1"), ("pb", False, "2(N-1-i)+1", "1"),
        ("pipedream", False, "N-i", "N-i"), ("2bw", False, "N-i", "2"), ("gpipe", False, "m", "1"),
        ("gpipe", True, "m inputs, 1", "1"), ("1f1b", False, "N-i", "1"),
        ("interleaved", False, "(v-1)p+2(p-r-1)+1 a worker", "1"), ("zb-h1", False, "N", "1")]


def seeds(machine, options):
    workers, size = min(options.stages or 4, machine.cores), (options.sizes or [32])[0]
    rounds = 1 if options.quick else options.rounds
    seconds = options.seconds / (10 if options.quick else 1)
    minibatches = [4] if options.quick else [2, 4, 8, 16]
    arms = []
    for schedule in SCHEDULES:
        groups = schedule in FLUSHING or schedule == "2bw"
        for m in minibatches if groups else [1]:
            arms.append({"network": "basic", "size": size, "schedule": schedule,
                         "stages": workers * (2 if schedule == "interleaved" else 1),
                         "microbatches": max(m, workers) if groups else 1})
    arms = list(cut_once(machine, arms))

    def turn(arm, _):
        figures = machine.predict(arm=arm, seconds=0.2 * seconds, link=machine.link)
        return {"measured_ms": machine.turn(arm=arm, seconds=seconds)["period_ms"],
                "predicted_ms": figures["predicted_ms"], "work_ms": figures["work_ms"]}

    others = OtherLoad(machine)
    taken = in_turns(arms, rounds, turn)
    load = others.cores()
    results = []
    for arm, figures in zip(arms, taken):
        schedule, m = arm["schedule"], arm["microbatches"]
        held = machine.memory(arm={**arm, "capture": "eager"})
        row = {"arm": schedule + (f", m = {m}" if m > 1 else ""), "schedule": schedule, "workers": workers,
               "microbatches": m, **medians(figures), "memory_bytes": max(stage["total"] for stage in held)}
        if schedule in FLUSHING:  # as the paper has it, with equal stages, and what is left beside the stages' work
            chunks = 2 * m if schedule == "interleaved" else m
            row["bubble"] = {"formula": (workers - 1) / (chunks + workers - 1),
                             "equal_stages": machine.equal_stages_bubble(arm=arm),
                             "measured": 1 - row["work_ms"] / (workers * row["measured_ms"])}
        results.append(row)
    memory = memory_by_schedule(machine, size)
    return {"suite": "seeds", "rounds": rounds, "seconds": seconds, "size": size, "workers": workers,
            "others_cores": load, "arms": results, "memory": memory,
            "claims": claims(results, memory["arms"], workers, 4), "planner": tables.schedules(machine),
            "provenance": machine.provenance(workers)}


def memory_by_schedule(machine, size):
    """Bytes of each of 4 stages, counted at the allocator, beside what the samples that the paper keeps would cost."""
    arms, one = [], None
    for schedule, recompute, samples, versions in KEPT:
        stages = machine.memory(arm={"network": "basic", "size": size, "schedule": schedule, "stages": 4,
                                     "microbatches": 8, "recompute": recompute, "cut": [5, 10, 15], "capture": "eager"})
        one = one or stages  # sequential's: one sample's activations
        for stage, each in zip(stages, one):
            stage["formula"] = stage["samples"] * each["activations"]
        arms.append({"arm": schedule + (" recompute" if recompute else ""),
                     "paper": {"samples": samples, "versions": versions}, "stages": stages})
    return {"stages": 4, "microbatches": 8, "arms": arms}


def claims(arms, memory, p, m):
    """What each paper claims, as published, predicted and measured: ratios and shares as text."""
    made = []

    def add(seed, claim, published, predicted, measured):
        made.append({"seed": seed, "claim": claim, "published": published, "predicted": predicted, "measured": measured})

    def arm_of(schedule, count):
        return next(arm for arm in arms if (arm["schedule"], arm["microbatches"]) == (schedule, count))

    def over(one, other):
        return [f"{one[figure] / other[figure]:.2f}" for figure in ("predicted_ms", "measured_ms")]

    def largest(name, figure, other):
        held = {arm["arm"]: max(stage[figure] for stage in arm["stages"]) for arm in memory}
        return f"{held[name] / held[other]:.2f}"

    def stashed(name):
        first = next(arm["stages"][0] for arm in memory if arm["arm"] == name)
        return f"{first['stashes'] / first['weights']:.2f}"

    gpipe, one_f, two, dream = arm_of("gpipe", m), arm_of("1f1b", m), arm_of("2bw", m), arm_of("pipedream", 1)
    for seed, arm in (("GPipe", gpipe), ("1F1B", one_f), ("interleaved 1F1B", arm_of("interleaved", m))):
        add(seed, f"idle share with {p} workers and {m} microbatches",
            *(f"{arm['bubble'][figure]:.3f}" for figure in ("formula", "equal_stages", "measured")))
    add("1F1B", "activations against GPipe's, 4 stages, 8 microbatches, first stage", "N/m = 0.50", "-",
        largest("1f1b", "activations", "gpipe"))
    add("GPipe", "activations with recomputing against without", "m inputs and one sample's", "-",
        largest("gpipe recompute", "activations", "gpipe"))
    no_flush = f"(m+p-1)/m = {(m + p - 1) / m:.2f}"
    add("PipeDream", f"time a sample of GPipe over PipeDream's, which has no flush, m = {m}", no_flush,
        *over(gpipe, dream))
    add("PipeDream", "older weight versions that stage 0 of 4 stashes, in weights", "N - 1 = 3", "-", stashed("pipedream"))
    add("2BW", f"time a sample of 1F1B over 2BW's, which has no flush, m = {m}", no_flush, *over(one_f, two))
    add("2BW", "older weight versions that stage 0 of 4 stashes, in weights", "1", "-", stashed("2bw"))
    for flushing in ("gpipe", "1f1b"):
        small = [arm for arm in arms if arm["schedule"] == flushing and arm["memory_bytes"] <= two["memory_bytes"]]
        if small:
            add("2BW", f"time a sample of {flushing} over 2BW's at equal memory, its m = {small[-1]['microbatches']}",
                "no flush", *over(small[-1], two))
        else:
            add("2BW", f"{flushing} at 2BW's memory", "no flush", "-", "needs more at any m here")
    add("2BW", "memory of the largest of 4 stages against 1F1B's", "one version more", "-", largest("2bw", "total", "1f1b"))
    add("2BW", "memory of the largest of 4 stages against PipeDream's", "2 versions instead of 4", "-",
        largest("2bw", "total", "pipedream"))
    return made


# --- partime ---

def partime(machine, options):
    """Measured where there is a core for each stage; predicted everywhere from what each module costs by itself."""
    seconds = options.seconds / (10 if options.quick else 1)
    others, arms = OtherLoad(machine), []
    # Small pictures first: whoever stops it early has the most.
    rows = [(size, network, capture) for size in options.sizes or ([16, 32] if options.quick else [16, 32, 64, 128, 256])
            for network in options.networks or NETWORKS for capture in options.captures or ["graph", "eager"]]
    for done, (size, network, capture) in enumerate(rows):
        progress(f"{network}, {size} pixels, {capture}: {done + 1} of {len(rows)}")
        alone = {}
        for n in range(1, (options.stages or (4 if options.quick else 8)) + 1):
            arm = {"network": network, "size": size, "stages": n, "capture": capture}
            predicted = machine.predict_by_modules(arm=arm, link=machine.link)
            if predicted is None:  # more stages than modules
                break
            row = {"arm": f"{network} {size} x{n} {capture}", **arm, "cut": predicted.pop("cut"), "predicted": predicted}
            if n <= machine.cores:
                turn = machine.turn(arm={**arm, "cut": row["cut"]}, seconds=seconds)
                row["measured"] = {"step_ms": turn["step_ms"], "T_ms": turn["T_ms"], "slowest_ms": turn["bottleneck_ms"]}
            for kind in ("predicted", "measured"):
                if kind in row:
                    row[kind]["K"] = alone.setdefault(kind, row[kind]["step_ms"]) / row[kind]["step_ms"]
            arms.append(row)
    progress("")
    results = {"suite": "partime", "seconds": seconds, "cores": machine.cores, "arms": arms, "others_cores": others.cores()}
    return {**results, "statements": partime_answers.statements(arms),
            "cameras": partime_answers.cameras(arms, machine.cores), "provenance": machine.provenance(machine.cores)}
