"""`millrace bench camera` and `ingest`: the path of a frame into the pipeline."""

from functools import partial

from measuring import in_turns, median_ratio, medians


def camera(machine, options):
    frames = max(1, int(options.rounds * options.seconds * 25))
    arms = [machine.camera(size=size, frames=frames) for size in options.sizes or [64, 128]]
    return {"fps": 25, "arms": arms, "threads": 2}


def ingest(machine, options):
    arms = {f"{kind} {width}x{height}": partial(machine.ingest, width=width, height=height, channels=channels)
            for kind, channels in (("rgb", 3), ("grey", 1)) for width, height in ((640, 480), (1280, 720), (1920, 1080))}
    arms |= {f"hop {name}": partial(machine.hop, pause_us=pause) for name, pause in (("at once", 0), ("every ms", 1000))}
    results = []
    for name, figures in in_turns(list(arms), options.rounds, lambda name, _: arms[name](seconds=options.seconds)):
        ours, *others = figures
        results.append({"arm": name, **medians(figures),
                        **{f"over_{other[:-3]}": median_ratio(figures[ours], figures[other]) for other in others}})
    return {"arms": results, "threads": 1}
