"""`millrace bench seeds`: the claims of other pipelines' papers, with steps and bytes measured here."""

import tables
from measuring import OtherLoad, in_turns, medians
from steps import SCHEDULES, cut_once

FLUSHING = ("gpipe", "1f1b", "interleaved", "zb-h1")
# A schedule, whether it recomputes, and by its paper, for stage i of N with m samples per
# minibatch: samples between forward and backward, versions of the weights.
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
    for arm, figures in taken:
        schedule, m = arm["schedule"], arm["microbatches"]
        held = machine.memory(arm={**arm, "capture": "eager"})
        row = {"arm": schedule + (f", m = {m}" if m > 1 else ""), "schedule": schedule, "workers": workers,
               "microbatches": m, **medians(figures), "memory_bytes": max(stage["total"] for stage in held)}
        if schedule in FLUSHING:  # by the paper, with equal stages, and as measured
            chunks = 2 * m if schedule == "interleaved" else m
            whole = 3 * chunks if schedule == "zb-h1" else chunks  # of which a bubble is one third
            row["bubble"] = {"formula": (workers - 1) / (whole + workers - 1),
                             "equal_stages": machine.equal_stages_bubble(arm=arm),
                             "measured": 1 - row["work_ms"] / (workers * row["measured_ms"])}
        results.append(row)
    return {"rounds": rounds, "seconds": seconds, "size": size, "workers": workers, "others_cores": load, "arms": results,
            "memory": memory_by_schedule(machine, size), "planner": tables.schedules(machine), "threads": workers}


def memory_by_schedule(machine, size):
    """Bytes of each of 4 stages, counted at the allocator, and those of the samples kept by the paper."""
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
