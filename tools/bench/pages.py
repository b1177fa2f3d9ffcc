"""A benchmark's results as a Markdown page: the text of words/SUITE.md, filled with them."""

import re
import string
from pathlib import Path

WORDS = Path(__file__).resolve().parent / "words"
PARTIME_NETWORKS = {"basic": "basic: 10 layers, 16 features, kernel 5", "layers": "layers x3: 30 layers",
                    "features": "features x3: 48 features", "kernel": "kernel x3: kernel 15"}
TABLE = re.compile(r"^(\|.*\|\n)(\|[-|]+\|\n)\{([\w ]+?)(?: with (\w+))?\}(\|.*\|\n)", re.M)


class Cell(string.Formatter):
    """Formats a row's figures. After a format comes a factor or divisor (.0f/1024) and a limit outside of which a figure
    is bold (.2f!<1.05); "ms" suits milliseconds. Missing figures give empty cells."""

    def get_field(self, name, args, row):
        try:
            return super().get_field(name, args, row)
        except (KeyError, TypeError):
            return None, name

    def format_field(self, value, pattern):
        if value is None or isinstance(value, str):
            return value or ""
        pattern, _, aim = pattern.partition("!")
        pattern, operator, number = re.fullmatch(r"(.*?)(?:([*/])([\d.e]+))?", pattern).groups()
        if operator:
            value = value * float(number) if operator == "*" else value / float(number)
        if pattern == "ms":
            pattern = ".3f" if value < 10 else ".1f"
        text = format(value, pattern)
        missed = aim and (value > float(aim[1:]) if aim[0] == "<" else value < float(aim[1:]))
        return f"**{text}**" if missed else text


def filled(name, results, /, **parts):
    """The text of words/NAME.md with the results' figures and `parts`. In its tables a line "{LIST}| cells |" stands for all
    rows, "{LIST with FIGURE}| cells |" for those that have it. A column whose head ends in "?" is there if it has a value."""
    values = {**results["provenance"], **results, **parts}

    def table(found):
        head, rule, rows, needed, cells = found.groups()
        if rows not in values:
            return "Not measured.\n"
        made = [[Cell().vformat(cell, (), row) for cell in cells.split("|")[1:-1]] for row in values[rows]
                if needed is None or needed in row]
        heads = head.split("|")[1:-1]
        shown = [i for i, head in enumerate(heads) if not head.endswith("? ") or any(row[i].strip() for row in made)]
        body = "".join("|" + "|".join(row[i] for i in shown) + "|\n" for row in made)
        return ("|" + "|".join(heads[i].replace("? ", " ") for i in shown) + "|\n|" + "---|" * len(shown) + "\n"
                + body.replace("{", "{{").replace("}", "}}"))

    return TABLE.sub(table, (WORDS / f"{name}.md").read_text()).format(**values)


def framerate(results):
    most = max(arm["stages"] for arm in results["arms"])
    arms = {(arm["network"], arm["size"], arm["stages"], arm["threads"], arm["capture"]): arm for arm in results["arms"]}

    def beside(one):
        place = one["network"], one["size"]
        return {"several": arms.get((*place, most, 1, one["capture"])), "eager": arms.get((*place, most, 1, "eager")),
                "threaded": arms.get((*place, 1, most, one["capture"]))}

    rivals = [row for row in results.get("pytorch", []) if row["capture"] != "eager"]
    alone = [arm for arm in results["arms"] if arm["stages"] == arm["threads"] == 1 and arm["capture"] != "eager"]
    return filled("framerate", results, most=most, rows=[{**arm, **beside(arm)} for arm in alone],
                  pytorch=filled("framerate-pytorch", results, rows=rivals) if "pytorch" in results else "")


# --- GPU ---

def pixels(row):
    return f"{row['width']}x{row['height']}"


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
    found = entry.get("error") or "\n\n" + filled("gpu-kernels", results, rows=gpu_kernels(results, entry))
    return f"\n{entry['name']} {pixels(entry)}, {entry['precision']}: {found}\n"


def gpu(results):
    known = {"provenance": {}, "device": {}, **results}  # pages are also made of partial results
    facts = {name: known["provenance"].get(name) for name in ("gpu", "cpu", "compiler", "libtorch", "cuda", "version")}
    cut_off = f"\nCut off after {results['cut_off_after_s']:g} s.\n" if "cut_off_after_s" in results else ""
    return filled("gpu", known, **facts, **{key: known["device"].get(key) for key in ("torch", "cudnn")},
                  steps=gpu_steps(results), cut_off=cut_off, failures="".join(gpu_failures(results)),
                  kernels="".join(gpu_kernels_section(known, entry) for entry in results.get("kernels", [])))


# --- Suites whose tables are grouped ---

def partime(results):
    known = {(arm["network"], arm["size"], arm["stages"], arm["capture"]): arm for arm in results["arms"]}

    def row(network, size, n):
        recorded, eager = (known.get((network, size, n, capture)) for capture in ("graph", "eager"))
        return {"N": n, "graph": recorded, "eager": eager, "T_over_N": recorded and recorded["predicted"]["T_ms"] / n}

    text = ""
    for network, title in PARTIME_NETWORKS.items():
        sizes = sorted({size for name, size, *_ in known if name == network})
        if sizes:
            text += f"\n## {title}\n\n![K over resolution](partime{'-' + network if network != 'basic' else ''}.png)\n"
        for size in sizes:
            stages = sorted({n for name, side, n, _ in known if (name, side) == (network, size)})
            text += filled("partime-size", results, size=size, rows=[row(network, size, n) for n in stages])
    return filled("partime", results, by_network=text)


def prediction(results):
    arms, goal = results["arms"], results["goal"]

    def row(arm):
        bold = "**" if abs(arm["ratio"] - 1) > goal else ""
        return {**arm, "ratio": f"{bold}{arm['ratio']:.3f}{bold}"}

    text = ""
    for network, size in dict.fromkeys((arm["network"], arm["size"]) for arm in arms):
        rows = [row(arm) for arm in arms if (arm["network"], arm["size"]) == (network, size)]
        text += filled("prediction-network", results, network=network, size=size, rows=rows)
    return filled("prediction", results, count=len(arms), near=100 * goal, by_network=text,
                  worst=100 * max(abs(arm["ratio"] - 1) for arm in arms))


def ranks(results):
    lacks, parts = results["lacks_hosts"], {}
    for kind in ("handoff", "step", "pytorch", "delay"):
        rows = [arm for arm in results["arms"] if arm["kind"] == kind]
        parts[kind] = filled(f"ranks-{kind}", results, rows=rows) if rows else ""
    return filled("ranks", results, lacks=lacks and f"There were no hosts on this machine: {lacks}\n\n", **parts)


def seeds(results):
    planned = ("\nThe planner's own figures at 2 to 8 equal stages, which are the formulas':\n\n"
               + comparisons(results, results["planner"])) if "planner" in results else ""
    return filled("seeds", results, planned=planned, held=results["memory"]["arms"])


def stream_section(results, stream):
    """Figures are means and deviations over the seeds; shares missed become shares hit."""
    name, labels, figures = stream["stream"], stream["labels"], ("error", "last_100", "out_of_stream")

    def shown(figure):
        return f"{100 * (1 - figure):.1f}" if labels else f"{1e6 * figure:.0f}"

    def row(arm):
        scale, pattern = (100, ".1f") if labels else (1e6, ".0f")
        return {**arm, **{key: f"{shown(arm[key]['mean'])} ± {scale * arm[key]['std']:{pattern}}" for key in figures}}

    return filled("streams-stream", results, name=name, uri=stream["uri"], suffix=f"-{name}" if name != "street" else "",
                  what="accuracy in %" if labels else "squared error in millionths",
                  simple="The most frequent class" if labels else "Copying the last frame",
                  rival={key: shown(stream["rival"][key]) + (" %" if labels else "") for key in figures},
                  rows=[row(arm) for arm in results["arms"] if arm["stream"] == name])


def streams(results):
    return filled("streams", results, names=",".join(stream["stream"] for stream in results["streams"]),
                  tried="; ".join(f"{kind} {', '.join(map(str, rates))}" for kind, rates in results["rates"].items()),
                  by_stream="".join(stream_section(results, stream) for stream in results["streams"]))


def comparisons(results, rows):
    """One table per source, in row order."""
    sources = dict.fromkeys(row["source"] for row in rows)
    return "\n".join(filled("tables-source", results, source=source, rows=[row for row in rows if row["source"] == source])
                     for source in sources)


def tables(results):
    return filled("tables", results, rows=comparisons(results, results["arms"]))


def peers(results):
    return filled("peers", results, planted=", ".join(f"`{kind}`" for kind in results["kinds"]))


PAGES = {"framerate": framerate, "gpu": gpu, "partime": partime, "peers": peers, "prediction": prediction, "ranks": ranks,
         "seeds": seeds, "streams": streams, "tables": tables}


def page(results):
    """By default the suite's text alone, with its tables."""
    return PAGES.get(results["suite"], lambda results: filled(results["suite"], results))(results)
