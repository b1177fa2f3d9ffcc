"""`millrace bench replay`: the benefit of replay when two scenes alternate."""

from measuring import in_turns, median, medians, median_ratio

TURN, EDGE, BUCKET, FPS = 100, 20, 10, 50  # frames: per scene, judged at its ends, per point of the curve


def replay_turn(machine, kind, number, frames, stages):
    settings = {"source.uri": f"synth:shapes?scenes=2&switch={TURN}&frames={frames}", "source.pace": "live",
                "source.fps": FPS, "source.width": 64, "source.height": 48, "source.seed": number, "model.seed": number,
                "task.kind": "autoencode", "model.preset": "partime-cnn",
                "pipeline.stages": stages, "replay.kind": kind}
    if stages == 2:
        settings["pipeline.cut"] = [4]  # equal in every round
    report, log = machine.run(settings, frames, log=True)
    losses = [line["loss"] for line in log]

    def mean(begin, end):
        return sum(losses[begin:end]) / (end - begin)

    returns = range(2 * TURN, len(losses) - EDGE + 1, TURN)  # a scene is known from its second turn on
    left = [mean(back - TURN - EDGE, back - TURN) for back in returns]
    again = [mean(back, back + EDGE) for back in returns]
    return {"loss_mean": mean(0, len(losses)), "loss_last_100": report["loss"]["recent"],
            "loss_as_a_scene_left": sum(left) / max(len(left), 1), "loss_as_it_came_back": sum(again) / max(len(again), 1),
            "replayed": report["frames"].get("replayed", 0), "share": report.get("replay", {}).get("share", 0),
            "dropped": report["frames"]["dropped"], "latency_p50_ms": report["latency_ms"]["p50"],
            "latency_p99_ms": report["latency_ms"]["p99"],
            "curve": [mean(at, at + BUCKET) for at in range(0, len(losses) - BUCKET + 1, BUCKET)]}


def replay(machine, options):
    frames, stages = options.frames or 800, options.stages or 2
    kinds = ["none", "recent", "reservoir", "hard"]
    taken = in_turns(kinds, options.rounds, lambda kind, number: replay_turn(machine, kind, number, frames, stages))
    figures = dict(taken)
    arms = []
    for kind, found in figures.items():
        curves, none = found.pop("curve"), figures["none"]
        arms.append({"arm": kind, **medians(found),
                     **{f"{p}_over_none": median_ratio(found[f"latency_{p}_ms"], none[f"latency_{p}_ms"])
                        for p in ("p50", "p99")},
                     "frames_a_point": BUCKET, "curve": [median(points) for points in zip(*curves)]})
    return {"frames": frames, "fps": FPS, "turn": TURN, "stages": stages, "arms": arms, "threads": stages}
