"""A benchmark's results as plots."""

from pathlib import Path

import pages

# Okabe and Ito's colours, which colour-blind people can distinguish.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
STYLE = {"axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "axes.titlelocation": "left",
         "axes.titleweight": "bold", "legend.frameon": False}


def grouped(rows):
    """{label: [(x, y), ...]} from (label, x, y)."""
    groups = {}
    for label, *point in rows:
        groups.setdefault(label, []).append(point)
    return groups


def bars(axes, title, unit, rows):
    """One bar per (group, category, value)."""
    groups, categories = grouped(rows), list(dict.fromkeys(category for _, category, _ in rows))
    width = 0.8 / max(len(groups), 1)
    for place, (label, values) in enumerate(groups.items()):
        axes.bar([i + (place + 0.5) * width - 0.4 for i in range(len(categories))],
                 [dict(values).get(category, float("nan")) for category in categories], width, label=label)
    axes.set_xticks(range(len(categories)), categories, rotation=35, ha="right")
    finish(axes, title, "", unit)


def lines(axes, title, x_label, unit, rows):
    """One line per label, one point per (label, x, y); predictions and references are dashed."""
    colours = {}
    for label, points in grouped(rows).items():
        dashed = label == "none" or "predicted" in label
        colour = colours.setdefault(label.removesuffix(", predicted").removesuffix(", measured"), f"C{len(colours) % len(COLOURS)}")
        axes.plot(*zip(*points), "--" if dashed else "-", marker="." if len(points) < 20 else None, label=label, color=colour)
    finish(axes, title, x_label, unit)


def finish(axes, title, x_label, y_label):
    axes.set_title(title)
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.grid(axis="y", alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))


def over_pytorch(axes, machine, rows):
    bars(axes, f"Frames learned a second, over PyTorch's best ({machine})", "times", rows)
    axes.axhline(1, color="black", linewidth=1, label="PyTorch's best")
    finish(axes, axes.get_title("left"), "", "times")


def framerate(axes, results):
    """Recorded steps; frames per second if PyTorch was not run."""
    rivals = {(row["network"], row["size"]): row["pytorch_ms"] / 1e3 for row in results.get("pytorch", []) if row["pytorch_ms"]}
    rows = []
    for arm in results["arms"]:
        n, threads, key = arm["stages"], arm.get("threads", 1), (arm["network"], arm["size"])
        if arm["capture"] != "eager":
            label = f"{n} stage{'s' if n > 1 else ''}" + (f" of {threads} threads" if threads > 1 else "")
            rows.append((label, "{} {}".format(*key), arm["fps"] * rivals.get(key, 1)))
    if rivals:
        over_pytorch(axes, f"{results['provenance']['threads']} cores", sorted(rows, key=lambda row: row[0]))
    else:
        bars(axes, "Frames learned a second", "frames a second", rows)


def gpu(axes, results):
    steps = sorted(pages.gpu_steps(results), key=lambda row: (row["name"], row["width"]))
    over_pytorch(axes, results["provenance"]["gpu"], [(row["precision"], f"{row['name']}, {pages.pixels(row)}", 1 / row["over_best"])
                                                      for row in steps if row["over_best"]])


def partime_network(network):
    def draw(axes, results):
        rows = [(f"N = {arm['stages']}, {kind}", arm["size"], arm[kind]["K"])
                for arm in sorted(results["arms"], key=lambda arm: (arm["stages"], arm["size"]))
                if arm["stages"] > 1 and (arm["network"], arm["capture"]) == (network, "graph")
                for kind in ("measured", "predicted") if kind in arm]
        lines(axes, f"Speed-up K, {pages.PARTIME_NETWORKS[network]}, recorded steps", "pixels a side", "K", rows)
    return draw


def peers(axes, results):
    """Each figure as a share of the best arm's."""
    rows = []
    for figure, key, least in (("learned, street", "street_times", False), ("learned, yard", "yard_times", False),
                               ("found, street", "street_found", False), ("found, yard", "yard_found", False),
                               ("labels", "accuracy", False), ("little processor time", "core_ms", True), ("little memory", "peak_bytes", True)):
        values = {row["arm"]: row[key] for row in results["rows"] if row[key]}
        best = (min if least else max)(values.values(), default=1)
        rows += [(row["arm"], figure, (best / value if least else value / best) if (value := values.get(row["arm"])) else 0)
                 for row in results["rows"]]
    bars(axes, "The same stream: each figure, as a share of the best one's", "1: the best", rows)


def prediction(axes, results):
    rows = [(arm["network"], f"{arm['workers']} {arm['schedule']}", 100 * (arm["ratio"] - 1)) for arm in results["arms"]]
    bars(axes, "Predicted step against the measured one", "% off", rows)


def replay(axes, results):
    rows = [(arm["arm"], (i + 0.5) * arm["frames_a_point"], loss) for arm in results["arms"] for i, loss in enumerate(arm["curve"])]
    axes.set_yscale("log")
    lines(axes, "Two scenes that take turns: the loss as each comes back", "frame", "loss before learning from the frame", rows)


def seeds_bubbles(axes, results):
    rows = [(label, f"{arm['schedule']} m={arm['microbatches']}", 100 * arm["bubble"][key])
            for arm in results["arms"] if "bubble" in arm and arm["microbatches"] in (4, 16)  # room for names
            for label, key in (("formula", "formula"), ("simulated, equal stages", "equal_stages"), ("measured", "measured"))]
    bars(axes, f"Share of time that a worker waits, {results['workers']} workers", "%", rows)


def streams_by_stages(name):
    def draw(axes, results):
        stream = next((stream for stream in results["streams"] if stream["stream"] == name), None)
        if not stream:
            return
        rows = []
        for arm in results["arms"]:
            if arm["stream"] == name and arm["group"] in ("schedules", "PyTorch") and arm["optimizer"] == "adam":
                label, at = arm["schedule"], arm["stages"]
                if arm["group"] == "PyTorch":
                    label, at = "PyTorch's loop, every N-th frame", arm["every"]
                label += ", vertical sync" if arm["settings"] else ""
                rows.append((label, at, arm["error"]["mean"], arm["error"]["std"]))
        for label, points in grouped(rows).items():
            axes.errorbar(*zip(*points), fmt="k--o" if label.startswith("PyTorch") else "-o", capsize=3, label=label)
        what = "most frequent class" if stream["labels"] else "copy of the last frame"
        axes.axhline(stream["rival"]["error"], color="grey", linestyle=":", label=what)
        axes.set_xscale("log", base=2)
        axes.set_xticks([1, 2, 4, 8], [1, 2, 4, 8])
        finish(axes, f"{name}: in stream, mean and deviation over {results['seeds']} seeds", "N",
               "share of frames whose class is missed" if stream["labels"] else "mean squared error")
    return draw


# Per suite: {appendix to the file's stem: plot function}.
PLOTS = {"framerate": {"": framerate}, "gpu": {"": gpu}, "peers": {"": peers}, "prediction": {"": prediction}, "replay": {"": replay},
         "seeds": {"": seeds_bubbles},
         "partime": {"" if network == "basic" else f"-{network}": partime_network(network) for network in pages.PARTIME_NETWORKS},
         "streams": {"": streams_by_stages("street"),
                     **{f"-{name}": streams_by_stages(name) for name in ("shapes", "turns", "drift")}}}


def draw(results, path):
    """Writes `path`, and further plots of the suite beside it."""
    import matplotlib  # not needed for pages
    matplotlib.use("Agg")
    from matplotlib import pyplot
    pyplot.rcParams.update(STYLE, **{"axes.prop_cycle": pyplot.cycler(color=COLOURS)})
    for name, picture in PLOTS[results["suite"]].items():
        figure, axes = pyplot.subplots(figsize=(12, 6.4), layout="constrained")
        picture(axes, results)
        if axes.has_data():  # otherwise its arms were not run
            figure.savefig(Path(path).with_stem(Path(path).stem + name))
        pyplot.close(figure)
