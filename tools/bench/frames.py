"""`millrace bench camera` and `ingest`: the path of a frame into the pipeline."""

from measuring import in_turns, median_ratio, medians


def camera(machine, options):
    frames = max(1, int(options.rounds * options.seconds * 25))
    arms = [machine.camera(size=size, frames=frames) for size in options.sizes or [64, 128]]
    return {"fps": 25, "arms": arms, "threads": 2}


def ingest(machine, options):
    pictures = [(channels, width, height) for channels in (3, 1)
                for width, height in ((640, 480), (1280, 720), (1920, 1080))]
    pauses = {"at once": 0, "every ms": 1000}

    def turn(arm, _):
        if arm in pauses:
            return machine.hop(pause_us=pauses[arm], seconds=options.seconds)
        channels, width, height = arm
        return machine.ingest(width=width, height=height, channels=channels, seconds=options.seconds)

    arms = [*pictures, *pauses]
    results = []
    for arm, figures in zip(arms, in_turns(arms, options.rounds, turn)):
        kind = {3: "rgb", 1: "grey"}.get(arm[0])
        name = f"{kind} {arm[1]}x{arm[2]}" if kind else f"hop {arm}"
        ours, *others = figures
        results.append({"arm": name, **medians(figures),
                        **{f"over_{other[:-3]}": median_ratio(figures[ours], figures[other]) for other in others}})
    return {"arms": results, "threads": 1}
