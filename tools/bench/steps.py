"""`millrace bench framerate`, `prediction` and `partime`: the duration of a pipeline's steps."""

import sys

from measuring import HERE, NETWORKS, Asked, OtherLoad, in_turns, median, medians, one_by_one

SLIDES = [name for name in NETWORKS if name != "resnet18"]
SCHEDULES = ["sequential", "partime", "pb", "pipedream", "2bw", "gpipe", "1f1b", "interleaved", "zb-h1"]


# --- framerate ---

def pytorch_ms(pytorch, network, size, way, threads, seconds):
    """Median milliseconds of PyTorch's training step; None where it can't."""
    found = pytorch.ask(network=NETWORKS[network], width=size, height=size, way=way, threads=threads, seconds=seconds)
    if "error" in found:
        print(f"\rPyTorch, {way} at {size}: {found['error']}", end="", file=sys.stderr)
    return found.get("ms")


def framerate(machine, options):
    cases = [(network, size) for network in options.networks or SLIDES for size in options.sizes or [32, 64]]
    if not options.networks and not options.sizes:  # the networks with targets on the page
        cases = [("basic", 16), ("basic", 32), ("basic", 64), ("basic", 128), ("layers", 32), ("features", 32),
                 ("kernel", 32), ("resnet18", 64)]
    most = options.stages or machine.cores
    arms = []
    for network, size in cases:
        for capture in options.captures or ["auto"]:
            base = {"network": network, "size": size, "capture": capture,
                    "channels_last": options.memory_format == "channels_last"}
            arms += cut_once(machine, [{**base, "stages": n} for n in range(1, most + 1)])
            if 1 < most <= machine.cores and machine.describe(arm=arms[-1])["programs"]:  # one stage on as many cores
                arms.append({**base, "stages": 1, "threads": [most]})
    modes = [(network, size, mode, 2**power) for network, size in cases
             for mode in ("eager", "channels_last", "compile") for power in range(machine.cores.bit_length())
             if options.pytorch]
    pytorch = Asked(options.pytorch, HERE / "pytorch_step.py") if options.pytorch else None

    def turn(arm, _):
        if isinstance(arm, tuple):
            return {"ms": pytorch_ms(pytorch, *arm, options.seconds)}
        peak = machine.peak()
        figures = machine.turn(arm=arm, seconds=options.seconds)
        return {**figures, "fps": 1e3 / figures["step_ms"], "peak": peak}

    taken = in_turns([*arms, *modes], options.rounds, turn)
    ours, peers = taken[:len(arms)], taken[len(arms):]
    results = {"memory_format": options.memory_format, "arms": [], "threads": most}
    for arm, figures in ours:
        threads = arm.get("threads", [1])[0]
        fps = median(figures["fps"])
        if arm["stages"] == 1 and threads == 1:
            alone = fps
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
    return results


def beside_pytorch(machine, network, size, capture, ours, peers, peak):
    """The most stages, against PyTorch's best mode and the limit: the time of the step's multiply-adds on all cores."""
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


# --- prediction ---

def cut_once(machine, arms):
    """The arms with their cuts, which are equal for schedules with as many stages."""
    cuts = {}
    for arm in arms:
        place = arm["network"], arm["size"], arm["stages"]
        if place not in cuts:
            cuts[place] = machine.describe(arm=arm)["cut"]
        yield {**arm, "cut": cuts[place]}


def quietest(machine, ask, tries=3):
    """(cores used by others, `ask()`). Repeats a disturbed turn."""
    best = None
    for _ in range(tries):
        others = OtherLoad(machine)
        answer = ask()
        best = min(filter(None, (best, (others.cores(), answer))), key=lambda each: each[0])
        if best[0] <= 0.05:
            break
    return best


def prediction(machine, options):
    own_size = {"basic": 64, "layers": 32, "features": 32, "kernel": 16}  # a step takes some milliseconds
    arms = list(cut_once(machine, [
        {"network": network, "size": size, "schedule": schedule, "capture": "eager",  # as modules are profiled
         "stages": workers * (2 if schedule == "interleaved" else 1)}
        for network in options.networks or SLIDES for size in options.sizes or [own_size[network]]
        for workers in range(1, (options.stages or 2) + 1) for schedule in sorted(SCHEDULES)]))
    latency, tries = [], 1 if options.quick else 3

    def turn(arm, number):
        if number == len(latency):
            machine.link = machine.ask(question="link")
            latency.append(machine.link["latency_ms"])
        beside, predicted = quietest(machine, lambda: machine.predict(arm=arm, seconds=options.seconds / 2,
                                                                      link=machine.link)["predicted_ms"], tries)
        meanwhile, measured = quietest(machine, lambda: machine.turn(arm=arm, seconds=options.seconds / 2)["period_ms"],
                                       tries)
        return {"predicted_ms": predicted, "measured_ms": measured, "ratio": predicted / measured,
                "others_cores": max(beside, meanwhile)}

    results = []
    for arm, figures in in_turns(arms, options.rounds, turn):
        workers = machine.describe(arm=arm)["workers"]
        results.append({"arm": f"{arm['network']} {arm['size']} {arm['schedule']} x{workers}", "network": arm["network"],
                        "size": arm["size"], "schedule": arm["schedule"], "workers": workers, "stages": arm["stages"],
                        "cut": arm["cut"], **medians(figures)})
    return {"link_latency_ms": median(latency), "goal": 0.05,
            "within": sum(abs(arm["ratio"] - 1) <= 0.05 for arm in results), "arms": results, "threads": 2}


# --- partime ---

def partime(machine, options):
    """Measured if there is a core per stage; predicted everywhere from the costs of single modules."""
    seconds = options.seconds / (10 if options.quick else 1)
    others, arms = OtherLoad(machine), []
    # Small pictures first: an early stop then leaves the most results.
    rows = [(size, network, capture) for size in options.sizes or ([16, 32] if options.quick else [16, 32, 64, 128, 256])
            for network in options.networks or SLIDES for capture in options.captures or ["graph", "eager"]]
    for size, network, capture in one_by_one("partime", rows):
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
    return {"seconds": seconds, "cores": machine.cores, "arms": arms, "others_cores": others.cores(),
            "threads": machine.cores}
