"""Measures and publishes the results. `millrace bench` runs this with the path of the C++ half as first argument."""

import argparse
import contextlib
import json
import os
import sys
from pathlib import Path

import events
import frames
import labels
import operations
import pages
import peers
import plots
import ranks
import replay
import seeds
import steps
import streams
import tables
from measuring import NETWORKS, Failure, Machine

SUITES = {
    "camera": (frames.camera, "from a picture that an RTSP camera shows to its prediction"),
    "events": (events.events, "what is found of events planted in a quiet yard and a busy street, beside MOG2"),
    "framerate": (steps.framerate, "networks by size, stages and threads, beside PyTorch and the cores' limit"),
    "ingest": (frames.ingest, "from a decoded frame to a sample, and from thread to thread"),
    "labels": (labels.labels, "whether what is taught stays learned, by kind of replay"),
    "operations": (operations.operations, "each operator of a step beside LibTorch's, of three networks or yours"),
    "partime": (steps.partime, "the PARTIME paper's experiments, measured and predicted"),
    "peers": (peers.peers, "what the same stream gives here, with PyTorch's loop, River, MOG2 and a PaDiM-like rule"),
    "prediction": (steps.prediction, "the simulator's prediction against the clock"),
    "ranks": (ranks.ranks, "several processes over MPI, beside one and beside PyTorch"),
    "replay": (replay.replay, "learning again from kept samples, on scenes that come back"),
    "seeds": (seeds.seeds, "the other pipelines' claims beside steps and bytes"),
    "streams": (streams.streams, "what each rule learns: error in and out of the stream, accuracy, memory"),
    "tables": (tables.published, "published figures, planned again"),
}


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Failure(f"{message} (see millrace bench --help)", 2)


def one_of(*names):
    """A comma-separated list of names."""
    def parse(text):
        for name in text.split(","):
            if name not in names:
                raise argparse.ArgumentTypeError(f'"{name}" is none of {", ".join(names)}')
        return text.split(",")
    return parse


def number(kind, least, most):
    def parse(text):
        try:
            if least <= kind(text) <= most:
                return kind(text)
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(f"{text} is not a number from {least} to {most}")
    return parse


def sizes(text):
    return [number(int, 8, 4096)(size) for size in text.split(",")]


def parser():
    suites = "\n".join(f"  {name:<12}{summary}" for name, (_, summary) in SUITES.items())
    made = Parser("millrace bench", description="Measure, and publish what was measured", epilog="Suites:\n" + suites,
                  formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    add = made.add_argument
    add("suite", choices=SUITES, metavar="suite", help="which; see below")
    add("--networks", type=one_of(*NETWORKS), default=[],
        help="framerate, partime, prediction: which of basic, layers, features, kernel; framerate: resnet18, too")
    add("--sizes", type=sizes, default=[], help="pixels a side, as 32,64; unset: the suite's own")
    add("--stages", type=number(int, 0, 19), default=0,
        help="1 to this many stages (prediction: workers); 0: the suite's own")
    add("--rounds", type=number(int, 1, 1000), default=5, help="how often the arms take turns; events, peers: trials a kind (5)")
    add("--seconds", type=number(float, 0.01, 3600), default=0.5, help="length of an arm's turn (0.5)")
    add("--quick", action="store_true",
        help="events, labels, partime, peers, ranks, seeds, streams: a small part of it; prediction: disturbed turns are not taken again")
    add("--captures", type=one_of("graph", "eager"), default=[], help="framerate, partime: graph, eager; unset: auto, both")
    add("--pytorch", default="", help="framerate, peers, ranks, streams: a Python with torch, to train the same networks beside")
    add("--memory-format", choices=["contiguous", "channels_last"], default="contiguous", help="framerate")
    add("--frames", type=number(int, 0, 100000), default=0,
        help="streams: learned from of each (0: 480); replay: of the stream (0: 800)")
    add("--streams", type=one_of(*streams.STREAMS), default=[], help="streams: which of " + ", ".join(streams.STREAMS))
    add("--arms", default="", help="ranks, streams: only those with this in their names")
    add("--config", help="operations: whose network, instead of the suite's three")
    add("--profiles", default="", help='tables: the folder "profiler" of a copy of PipeDream\'s repository')
    add("--json", help="where to write the results")
    add("--page", help="where to write a page of them, Markdown")
    add("--plot", help="where to write the plot, PNG; some suites put others beside it")
    add("--keep", help="events: leave the streams in this folder, and use those that are there")
    add("--from", dest="earlier", help="results of an earlier run to make page and plot of, instead of measuring")
    add("--compare", help="results of another run to show ratios to")
    return made


def read_results(option, path, suite):
    try:
        results = json.loads(Path(path).read_text())
        if results["suite"] == suite:
            return results
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise Failure(f"{option} {path}: holds no results of bench {suite}", 2)


def print_ratios(mine, theirs):
    """One line per common arm: this run's figures over the other's."""
    print(f"\nratios to {theirs['provenance']['version']} ({theirs['provenance']['cpu']})")
    others = {arm["arm"]: arm for arm in theirs["arms"]}
    for arm in mine["arms"]:
        other = others.get(arm["arm"], {})
        ratios = [f"{name} {value / other[name]:.3f}" for name, value in arm.items()
                  if isinstance(value, float) and isinstance(other.get(name), (int, float)) and other[name] != 0]
        if ratios:
            print(f"{arm['arm']:<20}", "  ".join(ratios))


def measure(program, options):
    """A suite returns its results, which include "arms" and the number of "threads" used."""
    with contextlib.closing(Machine(program)) as machine:
        results = SUITES[options.suite][0](machine, options)
        provenance = {**machine.facts["provenance"], "threads": results.pop("threads")}
        return {"suite": options.suite, "rounds": options.rounds, "seconds": options.seconds, **results,
                "provenance": provenance}


def require_writable(option, path):
    path = Path(path)
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise Failure(f"{option} {path}: can't be written", 2)


def main():
    options = parser().parse_args(sys.argv[2:])
    for name in ("json", "page", "plot"):
        if path := getattr(options, name):
            require_writable(f"--{name}", path)
    if "resnet18" in options.networks and options.suite != "framerate":
        raise Failure("--networks: resnet18 is for bench framerate", 2)
    if options.plot and options.suite not in plots.PLOTS:
        raise Failure(f"--plot: bench {options.suite} has no plot", 2)
    other = read_results("--compare", options.compare, options.suite) if options.compare else None
    results = read_results("--from", options.earlier, options.suite) if options.earlier else None
    results = results or measure(sys.argv[1], options)
    page = pages.page(results)
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=2) + "\n")
    if options.page:
        Path(options.page).write_text(page)
    if options.plot:
        plots.draw(results, options.plot)
    print(page)
    if other:
        print_ratios(results, other)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        print("millrace: error:", str(failure).partition("\n")[0], file=sys.stderr)
        sys.exit(failure.code)
