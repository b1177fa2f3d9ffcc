"""`millrace bench learning`: how well each rule learns from a stream. `replay`: what learning again from frames buys."""

from measuring import Failure, in_turns, median, medians, median_ratio, progress

VIDEOS = "file:///usr/share/doc/opencv-doc/examples/data/"
WIDTH, HEIGHT, SEEDS, SCENES = 48, 36, 3, 3
STREAMS = ("vtest", "film", "scenes", "labels")

ADAM = ("adam", {"kind": "adam"})
HALF = ("adam, beta1 0.5", {"kind": "adam", "beta1": 0.5})
BARE = ("adam, beta1 0", {"kind": "adam", "beta1": 0.0, "beta2": 0.99})  # where gradients are old, momentum hurts
MOMENTUM = ("sgd, momentum 0.9", {"kind": "sgd", "momentum": 0.9})
RATES = {"adam": (1e-4, 3e-4, 1e-3, 3e-3), "sgd": (0.008, 0.025, 0.08, 0.25)}


def stream_of(name, frames):
    turn = max(frames // 6, 1)
    uri = {"vtest": VIDEOS + "vtest.avi", "film": VIDEOS + "Megamind.avi",
           "scenes": f"synth:shapes?scenes={SCENES}&switch={turn}&drift=0.4",
           # In turn, a learner that drops every second frame would meet half of the classes.
           "labels": "synth:shapes?scenes=4&switch=4&order=random&drift=0.6"}[name]
    return {"name": name, "uri": uri, "turn": turn if name == "scenes" else 0, "scenes": SCENES, "labels": name == "labels",
            "frames": min(frames, {"vtest": 600, "film": 220}.get(name, frames)), "width": WIDTH, "height": HEIGHT}


def arms_on(stream):
    """Every arm: schedule, stages, optimizer, correction, norm, slope of the leaky ReLU, and learned from every k-th frame."""
    def arm(schedule, stages, optimizer, correction="none", every=1, norm="none", slope=0.0):
        return {"stream": stream, "schedule": schedule, "stages": stages, "optimizer": optimizer[0], "correction": correction,
                "norm": norm, "slope": slope, "every": every, **optimizer[1]}

    arms = [arm("sequential", 1, ADAM, every=every) for every in (1, 2, 4, 8)]
    arms += [arm("sequential", 1, BARE, every=every) for every in (1, 2, 4, 8)]
    for stages in (2, 4, 8):
        arms += [arm("partime", stages, ADAM)]
        arms += [arm("partime", stages, BARE, correction) for correction in
                 ("none", "inverse-age", "pipemare", "weight-prediction", "gap-aware", "dc-asgd")]
        arms += [arm("partime", stages, ADAM, "local")]
    for schedule in ("pb", "pipedream", "2bw"):
        arms += [arm(schedule, 4, BARE), arm(schedule, 4, BARE, "inverse-age"), arm(schedule, 4, ADAM, "local")]
    arms += [arm("pb", 4, BARE, "discrepancy")]
    arms += [arm(schedule, stages, BARE, "inverse-age") for stages in (2, 8) for schedule in ("pb", "pipedream")]
    # Networks beside sequential on the same; without a norm it is among the arms above.
    for norm, slope in (("none", 0.0), *((("instance", 0.0), ("instance", 0.3)) if stream != "labels" else ())):
        network = {"norm": norm, "slope": slope}
        arms += [arm("sequential", 1, ADAM, **network)] if norm != "none" else []
        for stages in (2, 8):
            if norm != "none":
                arms += [arm("partime", stages, ADAM, **network), arm("partime", stages, ADAM, "local", **network)]
            arms += [arm(schedule, stages, HALF, "inverse-age", **network) for schedule in ("partime", "pipedream")]
    return arms + [arm("partime", 4, MOMENTUM, correction) for correction in ("none", "spike-compensation", "local")]


def frames_text(every):
    """"all", "every 2nd", "every 4th"."""
    return "all" if every == 1 else f"every {every}" + {2: "nd", 3: "rd"}.get(every, "th")


def network_text(arm):
    return arm["norm"] + (f", leaky ReLU {arm['slope']:g}" if arm["slope"] else "")


def name_of(arm):
    return (f"{arm['stream']} {arm['schedule']} x{arm['stages']} {arm['optimizer']} {arm['correction']}"
            + (f", norm {network_text(arm)}" if arm["norm"] != "none" else "")
            + (f", {frames_text(arm['every'])} frame" if arm["every"] > 1 else ""))


def over_seeds(values):
    return {"mean": sum(values) / len(values), "min": min(values), "max": max(values)}


def learning(machine, options):
    """Every arm's rate is tuned on the same small grid with seed 0; figures are means over the seeds at that rate."""
    frames, seeds = options.frames or 600, 2 if options.quick else SEEDS
    wanted = {name: [arm for arm in arms_on(name) if options.arms in name_of(arm)
                     and (not options.stages or arm["stages"] <= options.stages)] for name in options.streams or STREAMS}
    if not any(wanted.values()):
        raise Failure(f'--arms: no arm of these streams has "{options.arms}" in its name', 2)
    results = {"suite": "learning", "frames": frames, "width": WIDTH, "height": HEIGHT, "seeds": seeds, "streams": [],
               "arms": []}
    for name, arms in filter(lambda each: each[1], wanted.items()):
        stream = stream_of(name, frames)

        def learn(jobs):
            scores = []
            for begin in range(0, max(len(jobs), 1), 8):  # so that progress is seen
                progress(f"{name}: run {begin} of {len(jobs)}")
                answer = machine.learn(stream=stream, jobs=jobs[begin:begin + 8])
                scores += answer["scores"]
            return answer, scores

        rates = {kind: rates[2:3] if options.quick else rates for kind, rates in RATES.items()}
        tuned = [{**arm, "lr": lr, "seed": 0} for arm in arms for lr in rates[arm["kind"]]]
        about, scores = learn(tuned)
        best = []
        for arm in arms:
            found = [(score["loss"], job["lr"], score) for job, score in zip(tuned, scores)
                     if {**job, "lr": 0, "seed": 0} == {**arm, "lr": 0, "seed": 0}]
            best.append(min(found, key=lambda each: each[0]))
        others = [{**arm, "lr": lr, "seed": seed} for arm, (_, lr, _) in zip(arms, best) for seed in range(1, seeds)]
        _, more = learn(others)
        results["streams"].append({"stream": name, "uri": stream["uri"], "classes": about["classes"],
                                   "mean_frame": about["mean_frame"]})
        for place, (arm, (_, lr, first)) in enumerate(zip(arms, best)):
            scores = [first, *more[place * (seeds - 1):(place + 1) * (seeds - 1)]]
            results["arms"].append(
                {"arm": name_of(arm), **{key: arm[key] for key in ("stream", "schedule", "stages", "optimizer", "correction")},
                 "norm": network_text(arm), "every": arm["every"], "lr": lr,
                 **{figure: over_seeds([score[figure] for score in scores]) for figure in first}})
    progress("")
    results["provenance"] = machine.provenance(1)
    return results


def merged(earlier, newer):
    """The earlier results, in which the newer ones' arms and streams replace theirs."""
    identity = ("stream", "schedule", "stages", "optimizer", "correction", "norm", "every")
    for listed, keys in (("streams", ("stream",)), ("arms", identity)):
        found = {tuple(item.get(key, "none") for key in keys): item for item in earlier[listed]}
        found.update({tuple(item[key] for key in keys): item for item in newer[listed]})
        earlier[listed] = list(found.values())
    return {**earlier, "provenance": newer["provenance"]}


# --- replay: two scenes take turns ---

TURN, EDGE, BUCKET, FPS = 100, 20, 10, 50  # frames a scene stays; that show how well it is known; a point of the curve


def replay_turn(machine, kind, number, frames, stages):
    settings = {"source.uri": f"synth:shapes?scenes=2&switch={TURN}&frames={frames}", "source.pace": "live",
                "source.fps": FPS, "source.width": 64, "source.height": 48, "source.seed": number, "model.seed": number,
                "task.kind": "autoencode", "model.preset": "partime-cnn",
                "pipeline.stages": stages, "replay.kind": kind}
    if stages == 2:
        settings["pipeline.cut"] = [4]  # the same in every round
    report, log = machine.run(settings, frames, log=True)
    losses = [line["loss"] for line in log]

    def mean(begin, end):
        return sum(losses[begin:end]) / (end - begin)

    returns = range(2 * TURN, len(losses) - EDGE + 1, TURN)  # from its second stay on a scene is known
    left = [mean(back - TURN - EDGE, back - TURN) for back in returns]
    again = [mean(back, back + EDGE) for back in returns]
    return {"loss_mean": mean(0, len(losses)), "loss_last_100": report["loss"]["recent"],
            "loss_as_a_scene_left": sum(left) / max(len(left), 1), "loss_as_it_came_back": sum(again) / max(len(again), 1),
            "replayed": report["frames"].get("replayed", 0), "share": report.get("replay", {}).get("share", 0),
            "dropped": report["frames"]["dropped"], "latency_p50_ms": report["latency_ms"]["p50"],
            "latency_p99_ms": report["latency_ms"]["p99"],
            "curve": [mean(at, at + BUCKET) for at in range(0, len(losses) - BUCKET + 1, BUCKET)]}


def replay(machine, options):
    """Kinds take turns; each round begins with another one, so that rounds are fair to who comes after one that idles."""
    frames, stages = options.frames or 800, options.stages or 2
    kinds = ["none", "recent", "reservoir", "hard"]
    figures = {kind: {} for kind in kinds}

    def turn(place, number):
        kind = kinds[(place + number) % len(kinds)]
        for name, value in replay_turn(machine, kind, number, frames, stages).items():
            figures[kind].setdefault(name, []).append(value)
        return {}

    in_turns(range(len(kinds)), options.rounds, turn)
    arms = []
    for kind, found in figures.items():
        curves, none = found.pop("curve"), figures["none"]
        arms.append({"arm": kind, **medians(found),
                     **{f"{p}_over_none": median_ratio(found[f"latency_{p}_ms"], none[f"latency_{p}_ms"])
                        for p in ("p50", "p99")},
                     "frames_a_point": BUCKET, "curve": [median(points) for points in zip(*curves)]})
    return {"suite": "replay", "rounds": options.rounds, "frames": frames, "fps": FPS, "turn": TURN, "stages": stages,
            "arms": arms, "provenance": machine.provenance(stages)}
