"""Finds where a module can be cut: its calls become a chain of parts, each a function of the previous part's output and
at most one earlier part's."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import operator
import sys
import threading
from collections.abc import Generator, Iterable, Iterator
from typing import Any, cast

import torch
from torch import fx, nn

from millrace._error import Error

SAMPLE, NONE = -1, -2  # see stages/network.h
MOST = 0.75  # of a network's weights; a larger module is looked into
_TRACING = threading.RLock()


class Untraced(Error):
    """FX can't see the calls of a forward."""


@contextlib.contextmanager
def alone() -> Generator[None]:
    """One thread at a time: tracing replaces nn.Module's call for the whole process."""
    with _TRACING:
        yield


@dataclasses.dataclass
class Part:
    """A part of a module: `graph` is a function of `sources`: part numbers or SAMPLE, the previous part first."""

    name: str
    graph: nn.Module
    sources: list[int]


class _Tracer(fx.Tracer):
    """Traces into nn.Sequential and the modules in `opened`."""

    proxy_buffer_attributes = True
    # They make a tensor of given sizes, which may be those of a traced one.
    sized = (torch.arange, torch.empty, torch.eye, torch.full, torch.linspace, torch.ones, torch.zeros)

    def __init__(self, opened: set[str], home: str) -> None:
        super().__init__(autowrap_functions=self.sized)
        self._autowrap_search += [torch, sys.modules.get(home, torch)]
        self.traced_func_name = "_millrace_forward"
        self.opened = opened

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return not isinstance(m, nn.Sequential) and module_qualified_name not in self.opened


def _require_stateless(traced: nn.Module) -> None:
    for name, child in cast("Iterable[tuple[str, nn.Module]]", traced.named_modules()):
        for attribute, value in vars(child).items():
            if isinstance(value, fx.Proxy):
                where = f"{name}.{attribute}" if name else attribute
                raise Error(f"{type(traced).__name__} can't be cut: its forward sets self.{where}; what it computes may "
                            "depend on the sample alone")


def _trace(module: nn.Module, opened: set[str]) -> fx.GraphModule:
    """Leaves forward's remaining arguments at their defaults."""
    kind: Any = type(module)
    try:
        # What forward assigns to itself must not stay, but its tensors are the module's.
        module = copy.deepcopy(module, {id(one): one for one in (*module.parameters(), *module.buffers())})
        tracer = _Tracer(opened, kind.forward.__module__)
        setattr(kind, tracer.traced_func_name, lambda self, x: kind.forward(self, x))
        try:
            graph = tracer.trace(module)
        finally:
            delattr(kind, tracer.traced_func_name)
        _require_stateless(module)
        for node in reversed(list(graph.nodes)):  # drop argument checks
            node.meta.pop("is_wrapped", None)  # or FX would wrap the function in all later traces as well
            if node.op == "call_function" and getattr(node.target, "__name__", "").startswith("_assert"):
                graph.erase_node(node)
        return fx.GraphModule(module, graph)
    except Error:
        raise
    except Exception as error:  # forward may do anything with a proxy
        raise Untraced(f"{kind.__name__}'s forward can't be traced") from error


def _fold_batch(graph: fx.Graph, ones: set[fx.Node]) -> None:
    """Replaces the batch size by 1, so that reading it creates no dependencies. `ones`: the calls that may give 1."""
    one: Any = 1  # FX takes constants too, though its type is Node
    for node in list(graph.nodes):
        shape = node.args[0] if node.op == "call_function" and node.target is operator.getitem else None
        of_shape = isinstance(shape, fx.Node) and (
            (shape.op == "call_function" and shape.target is getattr and shape.args[1] == "shape")
            or (shape.op == "call_method" and shape.target == "size" and len(shape.args) == 1))
        first = (of_shape and node.args[1] == 0) or (
            node.op == "call_method" and node.target == "size" and node.args[1:] == (0,))
        if first and node in ones:
            for user in list(node.users):
                user.replace_input_with(node, one)
            graph.erase_node(node)
    for node in reversed(list(graph.nodes)):
        if not node.users and node.op in ("call_function", "call_method") and node.target in (getattr, "size"):
            graph.erase_node(node)


def _in_place(node: fx.Node, module: nn.Module) -> bool:
    """Whether the call changes its first argument and gives it back."""
    if node.op == "call_module":
        return getattr(module.get_submodule(str(node.target)), "inplace", False) is True
    name = str(node.target if node.op == "call_method" else getattr(node.target, "__name__", ""))
    return node.op in ("call_method", "call_function") and (
        (name.endswith("_") and not name.endswith("__")) or node.kwargs.get("inplace") is True)


def _use_changed(traced: fx.GraphModule) -> None:
    """After y.add_(x), uses of y become uses of its result, so that the graph alone says what follows from what."""
    places = {node: i for i, node in enumerate(traced.graph.nodes)}
    for node in places:
        changed = node.args[0] if node.args else None
        if not _in_place(node, traced) or not isinstance(changed, fx.Node):
            continue
        for user in [user for user in changed.users if places[user] > places[node]]:
            user.replace_input_with(changed, node)
        if not node.users:
            raise Error(f"can't be cut: {node} changes a part of a tensor in place; assign the result instead")


class _Watch(fx.Interpreter):
    """Records the nodes whose result, a float32 tensor, may be passed between parts, and those that give 1."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.fit, self.ones = set[fx.Node](), set[fx.Node]()

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        # A forward may modify a list argument; the graph's own are immutable.
        own: Any = tuple(list(cast(list[object], one)) if isinstance(one, list) else one for one in args)
        return super().call_module(target, own, kwargs)

    def run_node(self, n: fx.Node) -> Any:
        made = super().run_node(n)
        if isinstance(made, torch.Tensor) and made.dtype == torch.float32:
            if 2 <= made.dim() <= 4 and made.size(0) == 1:
                self.fit.add(n)
        elif isinstance(made, int) and made == 1:
            self.ones.add(n)
        return made


def alike(parts: torch.Tensor, whole: torch.Tensor) -> bool:
    """But for rounding: a module may compute otherwise when it is called as a whole."""
    return parts.shape == whole.shape and torch.allclose(parts, whole, 1e-4, 1e-5 * float(whole.detach().abs().max()))


@contextlib.contextmanager
def _running(module: nn.Module) -> Generator[None]:
    """What FX has traced need not run."""
    try:
        yield
    except Exception as error:
        raise Untraced(f"{type(module).__name__} can't run as traced") from error


def _inputs(node: fx.Node) -> Iterator[fx.Node]:
    """The calls that it depends on, without parameters."""
    return (one for one in node.all_input_nodes if one.op != "get_attr")


def _parameters(module: nn.Module, call: fx.Node) -> set[int]:
    """Identifies the parameters that a call uses."""
    used = [operator.attrgetter(str(one.target))(module) for one in (call, *call.all_input_nodes)
            if one.op == "get_attr" or (one is call and one.op == "call_module")]
    return {id(parameter) for one in used
            for parameter in (one.parameters() if isinstance(one, nn.Module) else [one] if isinstance(one, nn.Parameter) else [])}


def _together(module: nn.Module, calls: list[fx.Node]) -> set[int]:
    """Where a cut would part two uses of a parameter."""
    inside, first = set[int](), dict[int, int]()
    for i, call in enumerate(calls):
        for parameter in _parameters(module, call):
            inside |= set(range(first.setdefault(parameter, i) + 1, i + 1))
    return inside


def _chain(calls: list[fx.Node], sample: fx.Node, fit: set[fx.Node], together: set[int]) -> list[list[fx.Node]]:
    """The longest chain of parts. A cut is valid if the next part uses the last one's output, every other live value is
    an earlier part's output, and no part takes more than one of those."""
    place = {node: i for i, node in enumerate(calls)}
    place[sample] = -1
    last_use = {node: max((place.get(user, len(calls)) for user in node.users), default=-1) for node in place}
    cuts = [i for i in range(1, len(calls)) if calls[i - 1] in fit and i not in together]  # before calls[i]
    while True:
        starts, ends = [0, *cuts], [*cuts, len(calls)]
        given = {calls[end - 1] for end in ends} | {sample}

        def takes(begin: int, end: int) -> set[fx.Node]:
            return {one for node in calls[begin:end] for one in _inputs(node) if place[one] < begin}

        def stands(i: int) -> bool:
            before, begin, end = calls[cuts[i] - 1], cuts[i], ends[i + 1]
            alive = [node for node in calls[:begin] if last_use[node] >= begin]
            taken = takes(begin, end)
            return before in taken and all(node in given for node in alive) and len(taken) <= 2

        falls = [cut for i, cut in enumerate(cuts) if not stands(i)]
        if not falls:
            return [calls[a:b] for a, b in zip(starts, ends)]
        cuts.remove(falls[-1])  # one at a time, from the end: removing a cut can make others possible


def _part(root: nn.Module, nodes: list[fx.Node], sources: list[fx.Node], result: fx.Node) -> fx.GraphModule:
    graph, copied = fx.Graph(), dict[fx.Node, fx.Node]()
    for i, source in enumerate(sources):
        copied[source] = graph.placeholder(f"x{i}")

    def copy(node: fx.Node) -> fx.Node:
        if node not in copied and node.op == "get_attr":
            copied[node] = graph.get_attr(str(node.target))
        return copied[node]

    for node in nodes:
        copied[node] = graph.node_copy(node, copy)
    graph.output(copied[result])
    return fx.GraphModule(root, graph)


def _label(nodes: list[fx.Node]) -> str:
    modules = [str(node.target) for node in nodes if node.op == "call_module"]
    return modules[0] if modules else str(getattr(nodes[0].target, "__name__", nodes[0].target))


def ends_in_sigmoid(graph: nn.Module) -> bool:
    """Whether the output comes from a sigmoid, as far as can be seen: a picture, not a change."""
    if not isinstance(graph, fx.GraphModule):
        return False
    last, = next(node for node in graph.graph.nodes if node.op == "output").all_input_nodes
    if last.op == "call_module":
        return isinstance(graph.get_submodule(str(last.target)), nn.Sigmoid)
    return last.target in (torch.sigmoid, nn.functional.sigmoid, "sigmoid")


@dataclasses.dataclass
class _Cut:
    """A module's calls and their longest chain of parts."""

    traced: fx.GraphModule
    sample: fx.Node
    output: fx.Node
    chain: list[list[fx.Node]]


def _cut_with(module: nn.Module, opened: set[str], example: torch.Tensor | None) -> _Cut:
    traced = _trace(module, opened)
    graph = traced.graph
    nodes = list(graph.nodes)
    sample = nodes[0]
    follow = {sample}  # depend on the sample
    for node in nodes:
        if follow.intersection(node.all_input_nodes):
            follow.add(node)
    fit, ones = set(nodes), follow
    if example is not None:
        watch = _Watch(traced)
        with _running(module):
            watch.run(example.clone())
        fit, ones = watch.fit, follow & watch.ones
    _fold_batch(graph, ones)
    _use_changed(traced)
    graph.eliminate_dead_code()
    output = nodes[-1].args[0]
    if not isinstance(output, fx.Node):
        raise Error(f"{type(module).__name__} can't be cut: its forward gives a {type(output).__name__}, "
                    "not one tensor")
    calls = [node for node in graph.nodes if node.op in ("call_module", "call_function", "call_method")]
    if not calls:
        raise Error(f"{type(module).__name__} can't be cut: it computes nothing")
    traced.recompile()
    together = _together(traced, calls)
    # A part that ends in a value of weights alone may be in the way of others.
    chains = (_chain(calls, sample, ends, together) for ends in (fit, fit & follow))
    chain = max(chains, key=len) if calls[-1] is output else [calls]
    return _Cut(traced, sample, output, chain)


def _closed(module: nn.Module, part: list[fx.Node]) -> set[str]:
    """The modules called by a part that could be traced into."""
    names = {str(node.target) for node in part if node.op == "call_module"}
    return {name for name in names if not type(module.get_submodule(name)).__module__.startswith("torch.nn.")}


def _weights(module: nn.Module) -> int:
    return sum(one.numel() for one in module.parameters())


def _longest(module: nn.Module, example: torch.Tensor | None) -> _Cut:
    """Traces into wrappers of a single module, and into modules with most of the weights, if possible."""
    opened: set[str] = set()
    found = _cut_with(module, opened, example)
    while len(found.chain) == 1 and (closed := _closed(module, found.chain[0])):
        opened |= closed
        found = _cut_with(module, opened, example)
    most = MOST * _weights(module)
    shut: set[str] = set()
    while large := {name for part in found.chain for name in _closed(module, part) - shut
                    if _weights(module.get_submodule(name)) > most}:
        shut |= large
        try:
            inside = _cut_with(module, opened | large, example)
        except Error:
            continue
        if len(inside.chain) > len(found.chain):
            found, opened = inside, opened | large
    return found


@alone()
def cut(module: nn.Module, example: torch.Tensor | None) -> list[Part]:
    """The parts of `module`, in order. Calls in its forward and in its nn.Sequentials are not split further, except for
    modules with most of the weights. `example` ([1,C,H,W]) shows which values may be passed on; None: all."""
    try:
        found = _longest(module, example)
        if example is not None:
            with _running(module):
                sample = example.flip(2, 3)
                if not alike(found.traced(sample.clone()), module(sample)):
                    raise Error(f"{type(module).__name__} computes otherwise as traced")
    except Untraced:
        return [Part(type(module).__name__, module, [SAMPLE])]
    number: dict[fx.Node, int] = {found.sample: SAMPLE}
    parts: list[Part] = []
    for i, chain in enumerate(found.chain):
        taken = {one for node in chain for one in _inputs(node) if one not in chain}
        sources = sorted(taken, key=lambda node: number[node] != i - 1)  # SAMPLE is -1
        result = found.output if i + 1 == len(found.chain) else chain[-1]
        parts.append(Part(_label(chain), _part(found.traced, chain, sources, result), [number[node] for node in sources]))
        number[chain[-1]] = i
    return parts
