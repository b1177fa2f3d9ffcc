"""A benchmark's results as a Markdown page."""

from pathlib import Path

from events import ARMS as EVENT_ARMS
from ranks import AGAINST

WORDS = Path(__file__).resolve().parent / "words"


# --- Markdown ---

def table(columns, rows):
    """Columns are (head, key or function of a row, format). A limit after "!" in a format makes values outside it bold:
    ".2f!<1.05". Missing values give empty cells."""
    head = "".join(f" {column[0]} |" if column[0] else " |" for column in columns)
    body = "".join("|" + "".join(f" {cell(row, *column[1:])} |" for column in columns) + "\n" for row in rows)
    return f"|{head}\n|" + "---|" * len(columns) + "\n" + body


def cell(row, key, pattern=""):
    value = key(row) if callable(key) else row.get(key)
    if value is None or isinstance(value, str):
        return value or ""
    pattern, _, aim = pattern.partition("!")
    text = format(value, pattern)
    missed = aim and (value > float(aim[1:]) if aim[0] == "<" else value < float(aim[1:]))
    return f"**{text}**" if missed else text


def at(*keys):
    """A function that gives a row's nested figure, or None."""
    def find(row):
        for key in keys:
            row = row.get(key) if isinstance(row, dict) else None
        return row
    return find


def filled(name, results, **parts):
    """The text of words/NAME.md, filled with the results' figures and `parts`."""
    words = (WORDS / f"{name}.md").read_text()
    return words.format(**{**results["provenance"], **results, **parts})


def made_by(results):
    return "Millrace {version}, LibTorch {libtorch}, {cpu}.\n".format(**results["provenance"])


def camera(results):
    def quantiles(name):
        return [(f"{name}, p50" if q == "p50" else q, at(f"{name}_to_prediction_ms", q), ".1f") for q in ("p50", "p99", "max")]

    return filled("camera", results, arms=table([("", "arm"), ("frames", "frames"), *quantiles("shown"),
                                                 *quantiles("capture")], results["arms"]))


# --- framerate ---

PARTIME_NETWORKS = {"basic": "basic: 10 layers, 16 features, kernel 5", "layers": "layers x3: 30 layers",
                    "features": "features x3: 48 features", "kernel": "kernel x3: kernel 15"}
def step_text(ms):
    return "" if ms is None else f"{ms:.3f}" if ms < 10 else f"{ms:.1f}"


def framerate(results):
    most = max(arm["stages"] for arm in results["arms"])
    arms = {(arm["network"], arm["size"], arm["stages"], arm["threads"], arm["capture"]): arm for arm in results["arms"]}

    def other(stages, threads, capture=None, figure="step_ms"):
        def find(row):
            found = arms.get((row["network"], row["size"], stages, threads, capture or row["capture"]), {}).get(figure)
            return step_text(found) if figure == "step_ms" else found
        return find

    named = ("network, px", lambda row: f"{row['network']}, {row['size']}")
    beside = "pytorch" in results and filled("framerate-pytorch", results, rows=table(
        [named, ("ours, ms", lambda row: step_text(row["step_ms"])),
         ("PyTorch's best, ms", lambda row: f"{step_text(row['pytorch_ms'])} ({row['pytorch_best']})"),
         ("over PyTorch", "over_pytorch", ".1f"), ("over the direct limit", "over_limit", ".2f"),
         ("one stage over one core's", "one_stage_over_limit", ".2f")],
        [row for row in results["pytorch"] if row["capture"] != "eager"]))
    return filled("framerate", results, most=most, pytorch=beside or "", stages=table(
        [named, ("1 stage", other(1, 1)), (f"{most} stages, a thread each", other(most, 1)),
         ("hand-off, %", other(most, 1, figure="handoff_percent"), ".2f"), (f"1 stage of {most} threads", other(1, most)),
         (f"{most} stages, operator by operator", other(most, 1, "eager"))],
        [arm for arm in results["arms"] if arm["stages"] == arm["threads"] == 1 and arm["capture"] != "eager"]))


# --- GPU ---

def pixels(row):
    return f"{row['width']}x{row['height']}"


NETWORK, PIXELS, STAGES = ("network", "name"), ("pixels", pixels), ("stages", "stages")
GPU_SECTIONS = {
    "stages": [NETWORK, PIXELS, STAGES, ("frames/s", "staged_fps", ".1f"), ("one stage, frames/s", "one_fps", ".1f"),
               ("over one", "ratio", ".2f!>1.3")],
    "processor time": [NETWORK, PIXELS, ("step, µs", "engine_us", ".2f"), ("bare launch, µs", "launch_us", ".2f"),
                       ("over launch", "ratio", ".2f!<1.2")],
    "latency": [NETWORK, PIXELS, STAGES, ("engine, ms", "engine_ms", ".4f"), ("bare, ms", "bare_ms", ".4f"),
                ("over bare", "ratio", ".3f!<1.05"), ("1 in 1000", "tail", ".2f!<1.1"),
                ("bare, 1 in 1000", "bare_tail", ".2f")],
    "profile": [NETWORK, PIXELS, ("modules, ms", "modules_ms", ".4f"), ("step, ms", "step_ms", ".4f"),
                ("over step", "ratio", ".2f")]}


def gpu_section(columns, rows):
    failed = [("failed with", "error")] if any("error" in row for row in rows) else []
    return table(columns + failed, rows) if rows else "Not measured.\n"


def gpu_steps(results):
    for row in results["networks"]:
        for precision, ours in row["ours"].items():
            ways = {arm.split(", ")[1]: answer.get("ms") for arm, answer in row["pytorch"].items()
                    if arm.split(", ")[0] == precision}
            best = min((ms for ms in ways.values() if ms), default=None)
            mine, aim = ours.get("step_ms"), row["aim_ms"] if precision == "float32" else None
            yield {**row, **ways, **ours, "precision": precision, "aim": aim, "best": best,
                   "over_aim": mine and aim and mine / aim, "over_best": mine and best and mine / best}


def gpu_failures(results):
    for row in results["networks"]:
        for side in "ours", "pytorch":
            for arm, answer in row[side].items():
                if "error" in answer:
                    yield f"- {row['name']} {pixels(row)}, {side} {arm}: {answer['error']}\n"


def gpu_kernels(results, entry):
    """One row per operation name, the longest first, with the device's limit."""
    device, rows = results["device"], {}
    for operation in entry.get("operations", []):
        row = rows.setdefault((operation["name"], operation["kernel"]), {**operation, "count": 0, "us": 0})
        row["count"] += 1
        row["us"] += operation["us"]
    whole = sum(row["us"] for row in rows.values())
    cycles = device.get("processors", 0) * device.get("clock_hz", 0)
    tensor = {8: 1024, 9: 2048}.get(device.get("generation"), 0) * (2 if entry["precision"] == "bf16" else 1)
    for row in rows.values():
        each = 1e-6 * row["us"] / row["count"]
        row["share"] = 100 * row["us"] / whole if whole else None
        for name, done, limit in (("fma", "flops", 256 * cycles), ("tensor", "flops", tensor * cycles),
                                  ("memory", "bytes", device.get("bytes_a_second", 0))):
            row[name] = 100 * row[done] / each / limit if each and limit and row[done] else None
    return sorted(rows.values(), key=lambda row: -row["us"])


def gpu_kernels_section(results, entry):
    columns = [("operation", "name"), ("kernel", "kernel"), ("times", "count"), ("µs", "us", ".2f"),
               ("of the step, %", "share", ".1f"), ("of FMA, %", "fma", ".0f"), ("of tensor, %", "tensor", ".0f"),
               ("of memory, %", "memory", ".0f")]
    found = entry.get("error") or "\n\n" + table(columns, gpu_kernels(results, entry))
    return f"\n{entry['name']} {pixels(entry)}, {entry['precision']}: {found}\n"


def gpu(results):
    known = {"provenance": {}, "device": {}, **results}  # pages are also made of partial results
    facts = {name: known["provenance"].get(name) for name in ("gpu", "cpu", "compiler", "libtorch", "cuda", "version")}
    sections = {name.replace(" ", "_"): gpu_section(columns, results.get(name, [])) for name, columns in GPU_SECTIONS.items()}
    steps = table([NETWORK, PIXELS, ("precision", "precision"), ("ours, ms", "step_ms", ".4f"), ("aim, ms", "aim", "g"),
                   ("over aim", "over_aim", ".2f!<1.1"), ("PyTorch's best, ms", "best", ".4f"),
                   ("over PyTorch", "over_best", ".2f!<1"), ("engine, ms", "engine_ms", ".4f"),
                   *((way, way, ".4f") for way in ("deterministic", "benchmark", "channels_last", "compile"))], gpu_steps(results))
    cut_off = f"\nCut off after {results['cut_off_after_s']:g} s.\n" if "cut_off_after_s" in results else ""
    return filled("gpu", known, **facts, **{key: known["device"].get(key) for key in ("torch", "cudnn")}, **sections, steps=steps,
                  cut_off=cut_off, failures="".join(gpu_failures(results)),
                  kernels="".join(gpu_kernels_section(known, entry) for entry in results.get("kernels", [])))


def ingest(results):
    samples = [("frame", "arm"), ("here, µs", "ingest_us", ".0f"), ("memcpy, µs", "memcpy_us", ".0f"),
               ("OpenCV, µs", "opencv_us", ".0f"), ("over memcpy", "over_memcpy", ".3f!<1.5"),
               ("over OpenCV", "over_opencv", ".3f!<0.5")]
    hops = [("frames", "arm"), ("frame queue, ns", "queue_ns", ".0f"), ("GStreamer, ns", "gstreamer_ns", ".0f"),
            ("mutex, ns", "mutex_ns", ".0f"), ("over GStreamer", "over_gstreamer", ".3f!<0.05"),
            ("over mutex", "over_mutex", ".3f!<0.1")]
    return filled("ingest", results, samples=table(samples, [arm for arm in results["arms"] if "ingest_us" in arm]),
                  hops=table(hops, [arm for arm in results["arms"] if "queue_ns" in arm]))


# --- partime ---

def partime(results):
    arms = results["arms"]
    known = {(arm["network"], arm["size"], arm["stages"], arm["capture"]): arm for arm in arms}

    def of(capture, kind, name):
        return lambda row: at(kind, name)(known.get((*row, capture)))

    def columns(capture, first):
        return [(first + "measured ms", of(capture, "measured", "step_ms"), ".3f"),
                ("predicted ms", of(capture, "predicted", "step_ms"), ".3f"), ("K", of(capture, "measured", "K"), ".2f"),
                ("K predicted", of(capture, "predicted", "K"), ".2f")]

    def T_over_N(row):
        T = of("graph", "predicted", "T_ms")(row)
        return T and T / row[2]

    text = ""
    for network, title in PARTIME_NETWORKS.items():
        sizes = sorted({arm["size"] for arm in arms if arm["network"] == network})
        if sizes:
            text += f"\n## {title}\n\n![K over resolution](partime{'-' + network if network != 'basic' else ''}.png)\n"
        for size in sizes:
            rows = sorted({(network, size, arm["stages"]) for arm in arms if (arm["network"], arm["size"]) == (network, size)})
            text += f"\n{size} px\n\n" + table(
                [("N", lambda row: row[2]), *columns("graph", "recorded: "), ("T ms", of("graph", "predicted", "T_ms"), ".3f"),
                 ("T/N", T_over_N, ".3f"), *columns("eager", "eager: ")], rows)
    return filled("partime", results, by_network=text) + made_by(results)


def peers(results):
    def percent(key):
        return lambda row: row[key] if row[key] is None else 100 * row[key]

    def by_arm(rows, pattern=""):
        return [(row["arm"], row["arm"], pattern) for row in results["rows"] if row["arm"] in rows[0]]

    columns = [("", "arm"), ("learned, street", "street_times", ".2f"), ("yard", "yard_times", ".2f"),
               ("found, street, %", percent("street_found"), ".0f"), ("yard, %", percent("yard_found"), ".0f"),
               ("false in 10 min", "false", ".1f"), ("labels, %", percent("accuracy"), ".1f"), ("ms a frame", "ms", ".1f"),
               ("of a core", "core_ms", ".1f"), ("memory, MB", lambda row: row["peak_bytes"] and row["peak_bytes"] / 1e6, ".0f")]
    return filled("peers", results, planted=", ".join(f"`{kind}`" for kind in results["kinds"]), table=table(columns, results["rows"]),
                  by_event=table([("", "what"), ("in the", "place"), *by_arm(results["found"])], results["found"]),
                  by_label=table([("", "what"), *by_arm(results["labels"], ".3f")], results["labels"])) + made_by(results)


def prediction(results):
    arms, goal = results["arms"], results["goal"]

    def ratio(arm):
        bold = "**" if abs(arm["ratio"] - 1) > goal else ""
        return f"{bold}{arm['ratio']:.3f}{bold}"

    text = ""
    for network, size in dict.fromkeys((arm["network"], arm["size"]) for arm in arms):
        text += f"## {network}, {size} x {size}\n\n" + table(
            [("schedule", "schedule"), ("workers", "workers"), ("stages", "stages"), ("predicted ms", "predicted_ms", ".3f"),
             ("measured ms", "measured_ms", ".3f"), ("ratio", ratio), ("others", "others_cores", ".2f")],
            [arm for arm in arms if (arm["network"], arm["size"]) == (network, size)]) + "\n"
    return filled("prediction", results, count=len(arms), near=100 * goal, by_network=text,
                  worst=100 * max(abs(arm["ratio"] - 1) for arm in arms)) + made_by(results)


def ranks(results):
    lacks, parts = results["lacks_hosts"], {}
    for kind, (other, title) in AGAINST.items():
        rows = [arm for arm in results["arms"] if arm["kind"] == kind]
        more = [("bare, cold ms", "bare_cold_ms", ".3f"), ("bytes", "bytes"), ("in process ms", "in_process_ms", ".3f")]
        columns = [("", "arm"), ("ours ms", "ours_ms", ".3f"), (f"{title} ms", other, ".3f"), ("ratio", "ratio", ".2f"),
                   *(more if kind == "handoff" else [])]
        parts[kind] = filled(f"ranks-{kind}", results, rows=table(columns, rows)) if rows else ""
    return filled("ranks", results, lacks=lacks and f"There were no hosts on this machine: {lacks}\n\n",
                  **parts) + made_by(results)


def events(results):
    arms = [(name, name) for name in EVENT_ARMS]
    return filled("events", results,
                  found=table([("", "what"), ("in the", "place"), *arms, ("place", "near"), ("reason", "reasons")], results["found_rows"]),
                  gradual=table([("", "what"), ("in the", "place"), *arms], results["gradual_rows"]),
                  silent=table([("", "what"), ("in the", "place"), ("minutes", "minutes", ".1f"), *arms],
                               results["quiet_rows"])) + made_by(results)


def labels(results):
    names = [("nearest class mean", "nearest class mean", ".3f"), *((name, name, ".3f") for name in ("by gradients", "reservoir", "ridge"))]
    return filled("labels", results, accuracy=table([("", "what"), ("labels", "taught"), *names], results["rows"]),
                  costs=table([("", "arm"), ("remembered, MB", lambda arm: arm["remembered_bytes"] / 1e6, ".1f"),
                               ("ms a frame", "ms_a_frame", ".2f")], results["costs"])) + made_by(results)


def replay(results):
    names = [("mean", "loss_mean", ".5f"), ("last 100", "loss_last_100", ".5f"), ("left", "loss_as_a_scene_left", ".5f"),
             ("back", "loss_as_it_came_back", ".5f"), ("replayed", "replayed", ".0f"), ("share", "share", ".2f"),
             ("dropped", "dropped", ".0f"), ("p50 ms", "latency_p50_ms", ".2f"), ("p99 ms", "latency_p99_ms", ".2f"),
             ("p50/none", "p50_over_none", ".3f"), ("p99/none", "p99_over_none", ".3f")]
    return filled("replay", results, arms=table([("kind", "arm"), *names], results["arms"])) + made_by(results)


# --- seeds ---

def seeds(results):
    def kib(name):
        return lambda arm: arm["stages"][0][name] / 1024

    def kept(name):
        return lambda arm: f"{arm['paper'][name]} = {arm['stages'][0][name]}"

    planned = ("\nThe planner's own figures at 2 to 8 equal stages, which are the formulas':\n\n"
               + comparisons(results.get("planner", [])))
    return filled(
        "seeds", results, planned=planned if "planner" in results else "",
        bubbles=table([("schedule", "arm"), ("formula", at("bubble", "formula"), ".3f"),
                       ("simulated, equal stages", at("bubble", "equal_stages"), ".3f"),
                       ("measured", at("bubble", "measured"), ".3f")], [arm for arm in results["arms"] if "bubble" in arm]),
        rates=table([("schedule", "arm"), ("measured ms", "measured_ms", ".3f"), ("predicted ms", "predicted_ms", ".3f"),
                     ("KiB of the largest stage", lambda arm: arm["memory_bytes"] / 1024, ".0f")], results["arms"]),
        held=table([("schedule", "arm"), ("samples kept", kept("samples")), ("weight versions", kept("versions")),
                    ("activations", kib("activations"), ".0f"), ("formula", kib("formula"), ".0f"),
                    ("stashed weights", kib("stashes"), ".0f"), ("in all", kib("total"), ".0f")],
                   results["memory"]["arms"])) + made_by(results)


# --- streams ---

def spread(key, scale, pattern, share=False):
    """Mean and standard deviation over the seeds; shares missed become shares hit."""
    def find(row):
        mean = 1 - row[key]["mean"] if share else row[key]["mean"]
        return f"{format(scale * mean, pattern)} ± {format(scale * row[key]['std'], pattern)}"
    return find


def stream_section(results, stream):
    name, labels, rival = stream["stream"], stream["labels"], stream["rival"]
    shown = (lambda error: f"{100 * (1 - error):.1f} %") if labels else (lambda error: f"{1e6 * error:.0f}")
    figure = ((lambda key: spread(key, 100, ".1f", share=True)) if labels else (lambda key: spread(key, 1e6, ".0f")))
    return (f"## {name}\n\n`{stream['uri']}`: " + ("accuracy in %" if labels else "squared error in millionths")
            + f". {'The most frequent class' if labels else 'Copying the last frame'}: {shown(rival['error'])}, last 100 "
            f"{shown(rival['last_100'])}, out of stream {shown(rival['out_of_stream'])}.\n\n"
            + f"![{name}: in stream, by schedule and stages](streams{'-' + name if name != 'street' else ''}.png)\n\n"
            + table([("", "arm"), ("rate", "rate", "g"), ("in stream", figure("error")), ("last 100", figure("last_100")),
                     ("out of stream", figure("out_of_stream")),
                     ("memory, KiB", lambda row: row["memory_bytes"] / 1024, ".0f"), ("gain", spread("gain", 1, ".1f")),
                     ("Ferret", "ferret", ".1f")], [arm for arm in results["arms"] if arm["stream"] == name]) + "\n")


def streams(results):
    return filled("streams", results, names=",".join(stream["stream"] for stream in results["streams"]),
                  tried="; ".join(f"{kind} {', '.join(map(str, rates))}" for kind, rates in results["rates"].items()),
                  by_stream="".join(stream_section(results, stream) for stream in results["streams"])) + made_by(results)


def comparisons(rows):
    """One table per source, in row order."""
    columns = [(name, name) for name in ("what", "published", "ours")]
    return "\n".join(f"## {source}\n\n" + table(columns, [row for row in rows if row["source"] == source])
                     for source in dict.fromkeys(row["source"] for row in rows))


def tables(results):
    return filled("tables", results, rows=comparisons(results["arms"]))


PAGES = {"camera": camera, "events": events, "framerate": framerate, "gpu": gpu, "ingest": ingest, "labels": labels, "partime": partime, "peers": peers,
         "prediction": prediction, "ranks": ranks, "replay": replay, "seeds": seeds, "streams": streams,
         "tables": tables}


def page(results):
    return PAGES[results["suite"]](results)
