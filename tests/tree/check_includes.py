"""Who may include whom: the table of ARCHITECTURE.md, held against the sources."""

import pathlib
import re
import sys

MAY_INCLUDE = {
    "io": {"io"},
    "stages": {"stages"},
    "capture": {"capture", "stages"},
    "engine": {"engine", "capture", "stages"},
    "tools": {"tools", "engine", "capture", "stages", "io"},
    "tests": {"tests", "tools", "engine", "capture", "stages", "io"},
    "demos": {"demos", "tools", "engine", "capture", "stages", "io"},
}
LIBTORCH = re.compile(r"^(ATen|c10|torch)/")
CUDA = re.compile(r"^(ATen/cuda|c10/cuda|nvtx3)/|^cuda")
INCLUDE = re.compile(r'^\s*#include\s+([<"])([^>"]+)[>"]', re.M)


def sources(root):
    for folder in MAY_INCLUDE:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in {".h", ".cpp", ".cuh"}:
                yield path.relative_to(root).as_posix(), path.read_text()


def room(name):
    """The folder of a file, one below the top level where there is one: engine/schedule, stages."""
    return "/".join(name.split("/")[:-1][:2])


def reachable(graph, start):
    seen, todo = set(), [start]
    while todo:
        for target in graph.get(todo.pop(), ()):
            if target not in seen:
                seen.add(target)
                todo.append(target)
    return seen


def core_files(root):
    """The .cpp files of the target that must build without LibTorch."""
    text = (root / "engine/CMakeLists.txt").read_text()
    block = re.search(r"add_library\(millrace_engine_core STATIC(.*?)\)", text, re.S).group(1)
    return ["engine/" + name for name in block.split()]


def main():
    root = pathlib.Path(sys.argv[1])
    faults, ours, system = [], {}, {}
    for name, text in sources(root):
        found = INCLUDE.findall(text)
        ours[name] = [target for quote, target in found if quote == '"']
        system[name] = [target for quote, target in found if quote == "<"]
        folder = name.split("/")[0]
        for target in ours[name]:
            if target.split("/")[0] not in MAY_INCLUDE[folder]:
                faults.append(f"{name} includes {target}: {folder} may not")
        for target in system[name]:
            if room(name).startswith(("io", "tools/page")) and LIBTORCH.match(target):
                faults.append(f"{name} includes {target}: {room(name)} never includes LibTorch")
            if CUDA.match(target) and not re.match(r"(tests/)?(capture(/program/cuda)?|tools/bench/gpu)/[^/]*_cuda[^/]*$|tests/(gpu|host_device)/", name):
                faults.append(f"{name} includes {target}: only *_cuda* of capture and tools/bench/gpu may")
    for name in ours:
        if re.match(r"engine/pipeline/(worker|edge)", name):
            faults += [f"{name} includes {target}: workers do not know of ranks" for target in ours[name]
                       if re.match(r"engine/pipeline/(rank_|exchange|mpi_)", target)]
        if name in reachable(ours, name):
            faults.append(f"{name} includes itself, by way of others")
    rooms = {}
    for name in ours:
        if name.split("/")[0] not in {"tests", "demos"}:
            rooms.setdefault(room(name), set()).update(room(t) for t in ours[name] if room(t) != room(name))
    for name in sorted(rooms):
        for target in sorted(rooms[name]):
            if name in reachable(rooms, target):
                faults.append(f"{name} and {target} include each other, by way of others")
    for name in core_files(root):
        for reached in {name} | reachable(ours, name):
            faults += [f"{name} reaches <{t}> through {reached}: the engine's core needs no LibTorch"
                       for t in system.get(reached, ()) if LIBTORCH.match(t)]
    print("\n".join(faults) or f"{len(ours)} files include whom they may")
    sys.exit(bool(faults))


main()
