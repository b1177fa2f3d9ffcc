"""Conclusions from `millrace bench partime`: the paper's statements, and the cameras that a machine can learn from."""

import math

SAME = 1.05  # ratios up to this count as equal


def lookup(arms):
    """A function that looks up an arm's figure in "predicted" or "measured"; it returns None without such an arm."""
    table = {(arm["network"], arm["size"], arm["stages"], arm["capture"]): arm for arm in arms}

    def figure(network, size, stages, capture, kind, name):
        return table.get((network, size, stages, capture), {}).get(kind, {}).get(name)

    return figure


class Ends:
    """Predicted K at the ends of the measured range."""

    def __init__(self, arms):
        sizes = [arm["size"] for arm in arms]
        self.small, self.large, self.most = min(sizes), max(sizes), max(arm["stages"] for arm in arms)
        self.figure = lookup(arms)

    def K(self, network, size, stages=None, capture="graph"):
        return self.figure(network, size, stages or self.most, capture, "predicted", "K")


def deeper(e):
    deep, basic = e.K("layers", e.large), e.K("basic", e.large)
    if deep and basic:
        return deep > SAME * basic, (f"K of {e.most} stages at {e.large} px: {deep:.2f} with 30 layers, "
                                     f"{basic:.2f} with 10")


def larger(e):
    found = {}
    for capture, name in (("graph", "recorded"), ("eager", "eager")):
        small, large = e.K("basic", e.small, capture=capture), e.K("basic", e.large, capture=capture)
        if small and large:
            found[f"{name}: K of {e.most} stages {small:.2f} at {e.small} px, {large:.2f} at {e.large}"] = (
                large > SAME * small)
    if found:
        return all(found.values()), "; ".join(found)


def overheads(e):
    steps = [e.figure("basic", size, 1, capture, "measured", "step_ms")
             for size in (e.small, e.large) for capture in ("eager", "graph")]
    if all(steps):
        small, large = steps[0] / steps[1], steps[2] / steps[3]
        return small > 1.5, (f"an eager step of one stage takes {small:.1f} times the recorded one at {e.small} px, "
                             f"{large:.1f} times at {e.large}")


def kernel(e):
    """Whether the large kernel's speed-up scales with resolution unlike the others'."""
    ends = {network: (e.K(network, e.small), e.K(network, e.large)) for network in ("basic", "layers", "features", "kernel")}
    if all(small and large for small, large in ends.values()):
        growth = {network: large / small for network, (small, large) in ends.items()}
        others = [value for network, value in growth.items() if network != "kernel"]
        return (growth["kernel"] * SAME < min(others) or growth["kernel"] > SAME * max(others),
                f"K of {e.most} stages at {e.large} px over that at {e.small}: "
                + ", ".join(f"{network} {value:.2f}" for network, value in growth.items()))


def plateau(e):
    """The longest range of stage counts, from two on, over which K does not grow."""
    K = {n: e.K("basic", e.large, n) for n in range(2, e.most + 1)}
    if not K or not all(K.values()):
        return None
    runs = []
    for first in K:
        last = first
        while last < e.most and K[last + 1] < SAME * K[first]:
            last += 1
        runs.append((last - first + 1, -first))
    length, begin = max(runs)
    begin, end = -begin, -begin + length - 1
    return length > 2, (f"10 layers at {e.large} px: K = {K[begin]:.2f} with {begin} stages, {K[end]:.2f} with {end}, "
                        f"{K[e.most]:.2f} with {e.most}")


STATEMENTS = {"The deeper, the more linear": deeper, "The higher the resolution, the higher the speed-up": larger,
              "Without graphs overheads are too high": overheads, "The large kernel is an exception": kernel,
              "Shallow networks reach a plateau": plateau}


def statements(arms):
    """[{"statement", "answer": "yes" | "no" | "-", "figure"}], in the order of the slides."""
    ends, rows = Ends(arms), []
    for statement, answer in STATEMENTS.items():
        yes, figure = answer(ends) or (None, "these arms were not run")
        rows.append({"statement": statement, "answer": {True: "yes", False: "no", None: "-"}[yes], "figure": figure})
    return rows


def size_within(steps, ms):
    """The size at which a step takes `ms`, by log-log interpolation; 0: below the smallest."""
    if steps[0][1] > ms:
        return 0
    for (small, quick), (large, slow) in zip(steps, steps[1:]):
        if slow > ms:
            return small * (large / small) ** (math.log(ms / quick) / math.log(slow / quick))
    return steps[-1][0]


def cameras(arms, cores):
    """[{"network", "stages", "kind", "fps", "size"}]: the largest square that a recorded step trains on within 1/fps,
    interpolated between the measured sizes and limited to the largest."""
    figure, rows = lookup(arms), []
    sizes, most = sorted({arm["size"] for arm in arms}), max(arm["stages"] for arm in arms)
    for network in sorted({arm["network"] for arm in arms}):
        for stages, kind in ((1, "measured"), (min(cores, most), "measured"), (most, "predicted")):
            steps = [(size, figure(network, size, stages, "graph", kind, "step_ms")) for size in sizes]
            steps = [step for step in steps if step[1]]
            rows += [{"network": network, "stages": stages, "kind": kind, "fps": fps,
                      "size": float(round(size_within(steps, 1e3 / fps)))} for fps in (10, 25, 30, 60) if steps]
    return rows
