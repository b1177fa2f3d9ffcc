"""Turns a PyTorch module into a list of TorchScript functions of inputs and parameters."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import io
import json
import os
import sys
import traceback
import warnings
from collections.abc import Generator, Iterable, Sequence
from typing import Any, NoReturn, cast

import torch
from torch import nn
from torch.nn.utils.stateless import _reparametrize_module
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from millrace._cut import NONE, Part, alike, alone, cut
from millrace._error import Error

FORMAT = 1  # see stages/torchscript.cpp
_INSIDE = tuple(os.path.join(os.path.dirname(file), "") for file in (torch.__file__, __file__))
_aten = torch.ops.aten
_READS_VALUES = {_aten._local_scalar_dense.default, _aten.is_nonzero.default, _aten.nonzero.default,
                 _aten.masked_select.default, _aten._unique2.default, _aten.equal.default,
                 _aten.unique_consecutive.default, _aten.unique_dim.default, _aten.bincount.default,
                 _aten.repeat_interleave.Tensor}
_GIVES_VALUES: set[Any] = {torch.Tensor.numpy, torch.Tensor.tolist, torch.Tensor.__array__, torch.allclose,
                           torch.Tensor.allclose}
_GIVES_NUMBERS: set[Any] = {torch.Tensor.__bool__, torch.Tensor.__int__, torch.Tensor.__float__}


def _refuse_values() -> NoReturn:
    at = [f for f in traceback.extract_stack() if not f.filename.startswith(_INSIDE)]
    raise Error(f"data-dependent control flow: {os.path.basename(at[-1].filename)}, line {at[-1].lineno}: "
                f"\"{at[-1].line}\" asks for a tensor's values")


class _NoValues(TorchDispatchMode):
    """Refuses operators that read values: data-dependent control flow gives no fixed list of operators."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _READS_VALUES:
            _refuse_values()
        return func(*args, **(kwargs or {}))


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class _Writes(TorchDispatchMode):
    """Notes the memory that operators write to."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.places = set[int]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.is_mutable:
            self.places |= {_place(one) for one in args[:1] if isinstance(one, torch.Tensor)}
        return func(*args, **(kwargs or {}))


class _NoValuesInPython(TorchFunctionMode):
    """Refuses functions that read values without an operator, and hooks on gradients."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _GIVES_VALUES:
            _refuse_values()
        if func is torch.Tensor.register_hook:
            raise Error("its forward puts a hook on a gradient, which would be lost")
        return func(*args, **(kwargs or {}))


class _Conversions(TorchFunctionMode):
    """Notes whether a forward, not PyTorch, turns a traced size into a Python number."""

    found = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _GIVES_NUMBERS and not sys._getframe(1).f_code.co_filename.startswith(_INSIDE):
            self.found = True
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def own_modes() -> Generator[None]:
    """Without the caller's autocast, inference mode and default device."""
    if torch.get_default_dtype() != torch.float32:
        raise Error(f"PyTorch's default type is {str(torch.get_default_dtype()).removeprefix('torch.')}; "
                    "networks learn in float32: call torch.set_default_dtype(torch.float32)")
    off = [torch.autocast(device, enabled=False) for device in ("cpu", "cuda")]
    with torch.inference_mode(False), torch.device("cpu"), off[0], off[1]:
        yield


@contextlib.contextmanager
def _differentiable() -> Generator[None]:
    """Disables the fast path of attention, which has no gradients, and TorchScript's optimizer, whose plans stay."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad(), torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _own_gradient(output: object) -> str | None:
    """The name of an autograd.Function that `output` depends on. Tracing sees its forward alone."""
    seen, left = set[Any](), [getattr(output, "grad_fn", None)]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        kind = getattr(node, "_forward_cls", torch.autograd.Function)
        if not kind.__module__.startswith("torch."):
            return kind.__name__
        seen.add(node)
        left += [before for before, _ in node.next_functions]
    return None


class _Function(nn.Module):
    """A part whose parameters and buffers are arguments, [..., names...]."""

    held: tuple[nn.Module, list[str], int]

    def __init__(self, part: Part, names: list[str]) -> None:
        super().__init__()
        object.__setattr__(self, "held", (part.graph, names, len(part.sources)))  # not registered as a child

    def forward(self, *given: torch.Tensor) -> Any:
        graph, names, inputs = self.held
        with _reparametrize_module(graph, dict(zip(names, given[inputs:])), tie_weights=True):
            return graph(*given[:inputs])


def write_whole(path: str | os.PathLike[str], content: bytes) -> None:
    """Writes a temporary file and renames it to what `path` links to. On OSError leaves nothing behind. A device or pipe
    is written to."""
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as stream:
            stream.write(content)
        return
    path = os.path.realpath(path)
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        if os.path.exists(temporary):
            os.remove(temporary)
        raise


@dataclasses.dataclass
class Value:
    """A parameter or buffer of a part, float32, with its name in the module's state_dict."""

    name: str
    tensor: torch.Tensor = dataclasses.field(repr=False)
    fixed: bool  #: no gradient: a buffer, or a parameter that requires none or is unused
    also: list[str]  #: its other names there
    constant: bool  #: its name is not there


@dataclasses.dataclass
class Function:

    name: str
    sources: list[int]
    values: list[Value]
    traced: torch.jit.ScriptModule = dataclasses.field(repr=False)
    inputs: list[int]  #: dimensions of each input
    channels: int  #: of the output


@dataclasses.dataclass
class Exported:
    """A module as parts 0, 1, ..., the units of `pipeline.cut`."""

    name: str
    parts: list[Function]
    output: list[int]  #: the output's shape for the example, [1,...]
    size: list[int] | None  #: [H,W], if its parts hold for samples of the example's size alone
    remarks: list[str]  #: notes for users, one line each

    def save(self, file: str | os.PathLike[str]) -> None:
        """Writes the file that `[model] preset = "file"` reads. TorchScript is code: load only what you would run."""
        archive, about, count = nn.Module(), list[dict[str, Any]](), 0
        for i, part in enumerate(self.parts):
            archive.add_module(f"part_{i}", part.traced)
            values: list[dict[str, Any]] = []
            for value in part.values:
                archive.register_buffer(f"w{count}", value.tensor)
                name = f".constant.{count}" if value.constant else value.name  # see stages/parameters.cpp
                values.append({"name": name, "also": value.also, "fixed": value.fixed, "value": count})
                count += 1
            about.append({"name": part.name, "inputs": part.inputs, "channels": part.channels,
                          "from": part.sources[1] if len(part.sources) > 1 else NONE, "parameters": values})
        text = json.dumps({"format": FORMAT, "module": self.name, "parts": about, "remarks": self.remarks,
                           "size": self.size})
        memory = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.jit.save(torch.jit.script(archive), memory, _extra_files={"millrace.json": text})
        try:
            write_whole(file, memory.getvalue())
        except OSError as error:
            raise Error(f"{os.fspath(file)}: can't be written: {error.strerror}") from error

    def __str__(self) -> str:
        rows = [f"{self.name} in {len(self.parts)} parts"]
        for i, part in enumerate(self.parts):
            joins = "".join(f", joins {'the sample' if source < 0 else source}" for source in part.sources[1:])
            rows.append(f"  {i}  {part.name}{joins}")
        return "\n".join(rows)


def _require_own_memory(module: nn.Module) -> None:
    """A copy parts tensors that share memory but are not one."""
    begun: list[tuple[int, int, str]] = []
    for name, one in (*module.named_parameters(), *module.named_buffers()):
        last = sum((size - 1) * stride for size, stride in zip(one.shape, one.stride()))
        if one.numel() and not one.is_meta:
            begun.append((one.data_ptr(), one.data_ptr() + last * one.element_size(), name))
    begun.sort()
    for (_, end, name), (begin, _, other) in zip(begun, begun[1:]):
        if begin <= end:
            raise Error(f"{name} and {other} share their memory, and would be learned apart: make them one parameter, as in "
                        "decoder.weight = encoder.weight")


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


_WRAPPERS = {"OptimizedModule": "_orig_mod", "DataParallel": "module", "DistributedDataParallel": "module"}


def prepared(module: nn.Module) -> nn.Module:
    """A copy ready for training: batch norms use running statistics, no dropout."""
    kind = type(module).__name__
    if kind in _WRAPPERS:
        raise Error(f"{kind} wraps the network: pass the network itself, its attribute .{_WRAPPERS[kind]}")
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if isinstance(tensor, (nn.UninitializedParameter, nn.UninitializedBuffer)):
            raise Error(f"{name} has no shape yet: first call the module on a sample, as in "
                        "module(torch.zeros(1, 3, 96, 128))")
        if tensor.is_meta:
            raise Error(f"{name} has no values: it is on the meta device; call "
                        "module.to_empty(device=\"cpu\") and load weights")
        if tensor.dtype != torch.float32 and isinstance(tensor, nn.Parameter):
            raise Error(f"{name} is {str(tensor.dtype).removeprefix('torch.')}; parameters must be "
                        "float32: call module.float()")
        if tensor._backward_hooks or getattr(tensor, "_post_accumulate_grad_hooks", None):
            raise Error(f"{name} has a hook on its gradient, which would be lost")
    for name, child in cast("Iterable[tuple[str, nn.Module]]", module.named_modules()):
        if isinstance(child, torch.jit.ScriptModule):
            raise Error(f"{name or kind} is TorchScript: pass the nn.Module that it was made from")
        if child._backward_hooks or child._backward_pre_hooks:
            raise Error(f"{name or kind} has a backward hook, which would be lost")
    _require_own_memory(module)
    try:
        module = copy.deepcopy(module).cpu()
    except Exception as error:
        hint = (" Take weight_norm and spectral_norm of torch.nn.utils.parametrizations, and prune.remove() what is "
                "pruned" if isinstance(error, RuntimeError) else "")
        raise Error(f"{kind} can't be copied: {_first_line(error)}{hint}") from error
    module.eval()  # need not return it
    for child in module.modules():
        if isinstance(child, (nn.Embedding, nn.EmbeddingBag)):
            child.sparse = False  # gradients of weights in one flat buffer are dense
    return module


def _changed(module: nn.Module, first: torch.Tensor, then: torch.Tensor) -> str | None:
    """The parameter or buffer that its forward changes, except for caches, which the first call fills."""
    fresh = copy.deepcopy(module)
    module(first.clone())
    before = [(name, one, _place(one), one.clone()) for name, one in
              (*module.named_parameters(), *module.named_buffers())]
    with _Writes() as writes:
        output = module(then.clone())
    after = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name, one, place, value in before:
        now = after.get(name, one)
        written = isinstance(one, nn.Parameter) and (_place(now) != place or place in writes.places)
        if written or now.shape != value.shape or not torch.allclose(now, value, 0, 0, equal_nan=True):
            return name
    if isinstance(output, torch.Tensor) and not alike(output, fresh(then.clone())):
        raise Error("it gives different outputs for one sample; does its forward draw random numbers, or keep what it "
                    "has seen?")
    return None


def _not_in_place(module: nn.Module) -> nn.Module:
    """A copy whose modules leave their inputs alone."""
    module = copy.deepcopy(module)
    for child in module.modules():
        if getattr(child, "inplace", False) is True:
            setattr(child, "inplace", False)
    return module


_REMARKS = {nn.modules.batchnorm._BatchNorm: "batch norms keep their running statistics, since a sample is one frame; "
                                             "their weights learn",
            nn.modules.dropout._DropoutNd: "dropout is off"}


def example_for(module: nn.Module) -> torch.Tensor:
    """A sample of the default size with the first convolution's channels."""
    convolutions = (child for child in module.modules() if isinstance(child, nn.modules.conv._ConvNd))
    channels = next((child.in_channels for child in convolutions), 3)
    return torch.rand(1, channels, 96, 128, generator=torch.Generator().manual_seed(0))


def _other_names(module: nn.Module) -> dict[str, list[str]]:
    """By each name: the other names of the same parameter or buffer."""
    names: dict[int, list[str]] = {}
    for name, one in (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)):
        names.setdefault(id(one), []).append(name)
    return {name: [other for other in group if other != name] for group in names.values() for name in group}


def _tensors(module: nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Its parameters and buffers, but for those of other types, which stay in a graph as constants."""
    return [(name, one) for name, one in (*module.named_parameters(), *module.named_buffers())
            if one.dtype == torch.float32]


def _values(part: Part, module: nn.Module) -> list[Value]:
    """With buffers that earlier parts have as well."""
    other_names, named = _other_names(module), module.state_dict()
    return [Value(name, one.detach().clone(), not (isinstance(one, nn.Parameter) and one.requires_grad),
                  other_names.get(name, []), name not in named and not isinstance(one, nn.Parameter))
            for name, one in _tensors(part.graph)]


def _unused(parts: list[Part], module: nn.Module) -> list[Value]:
    """What no part has, so that the module's weights fit, and are whole."""
    used, named = {id(one) for part in parts for _, one in _tensors(part.graph)}, module.state_dict()
    other_names = _other_names(module)
    return [Value(name, one.detach().clone(), True, other_names[name], False) for name, one in _tensors(module)
            if id(one) not in used and name in named]


_OF_SIZES = {"aten::floor_divide": "aten::floordiv", "aten::rsub": "aten::sub",
             **{same: same for same in ("aten::mul", "aten::add", "aten::sub", "aten::remainder")}}


def _number(graph: torch.Graph, kind: str, node: Any, inputs: Sequence[Any] = ()) -> Any:
    """A new node before `node` that gives an integer."""
    made = graph.create(kind, list(inputs), 1)
    made.output().setType(torch._C.IntType.get())
    return made.insertBefore(node)


def _count_in_numbers(graph: torch.Graph) -> None:
    """Turns traced arithmetic on sizes from tensors to numbers: steps that read tensors' values can't be recorded."""
    torch._C._jit_pass_inline(graph)
    numbers: dict[str, torch.Value] = {}  # of tensors

    def operator(node: Any) -> str | None:
        kind, given = node.kind(), [value.toIValue() for value in node.inputs()][2:]
        if kind == "aten::div" and given and given[0] in ("trunc", "floor"):
            return "aten::floordiv"  # sizes are not negative
        return _OF_SIZES.get(kind) if all(alpha == 1 for alpha in given) else None

    def number(kind: str, node: Any, inputs: Sequence[Any] = ()) -> Any:
        made = _number(graph, kind, node, inputs)
        numbers[node.output().debugName()] = made.output()
        return made

    for node in list(graph.nodes()):
        inputs, kind = list(node.inputs()), node.kind()
        of = [numbers.get(value.debugName(), value) for value in inputs[:2]]
        if kind == "prim::NumToTensor":
            numbers[node.output().debugName()] = inputs[0]
        elif kind == "prim::Constant" and node.hasAttribute("value") and node.kindOf("value") == "t":
            value = node.t("value")
            if value.dim() == 0 and value.dtype == torch.int64:
                number(kind, node).i_("value", int(value))
        elif kind == "aten::Int" and inputs[0].debugName() in numbers:
            node.output().replaceAllUsesWith(of[0])
        elif (len(of) == 2 and all(value.type().kind() == "IntType" for value in of) and of != inputs[:2]
              and (name := operator(node))):
            number(name, node, of[::-1] if kind == "aten::rsub" else of)
    torch._C._jit_pass_dce(graph)


def _reshape(graph: Any) -> None:
    """Replaces unflatten, whose rank ONNX's exporter does not know."""
    for node in graph.findAllNodes("aten::unflatten"):
        x, dim, inner = node.inputs()
        rank, at, given = x.type().dim(), dim.toIValue(), inner.toIValue()
        if rank is None or at is None:
            continue

        def constant(value: int, node: Any = node) -> Any:
            return _number(graph, "prim::Constant", node).i_("value", value).output()
        sizes = [_number(graph, "aten::size", node, [x, constant(i)]).output() for i in range(rank)]
        sizes[at % rank:at % rank + 1] = map(constant, given) if given else inner.node().inputs()
        shape = graph.create("prim::ListConstruct", sizes, 1).insertBefore(node)
        shape.output().setType(torch._C.ListType.ofInts())
        made = graph.create("aten::reshape", [x, shape.output()], 1).insertBefore(node)
        made.output().setType(node.output().type())
        node.output().replaceAllUsesWith(made.output())
        node.destroy()
    torch._C._jit_pass_dce(graph)


def _out_of_place(graph: torch.Graph, inputs: list[Any]) -> None:
    """Replaces `relu(x, inplace=True)` and `x += y`, since x may be a stage's input or saved. Keeps writes to views; the
    graph then begins by copying `inputs`."""
    def schema(node: Any) -> Any:
        return torch._C.parse_schema(node.schema()) if node.schema() != "(no schema)" else None

    def views(node: Any) -> bool:
        found = schema(node)
        return found is not None and not found.is_mutable and any(one.alias_info for one in found.returns)

    kept = False
    for node in list(graph.nodes()):
        found, name = schema(node), node.kind().removeprefix("aten::").removesuffix("_")
        if found is None or not found.is_mutable:
            continue
        written = node.inputsAt(0)
        if (not node.kind().endswith("_") or not hasattr(torch.ops.aten, name) or name == "copy"  # has no gradient
                or views(written.node()) or any(views(use.user) for use in written.uses())):
            kept = True
            continue
        made = graph.create(f"aten::{name}", list(node.inputs()), 1).insertBefore(node)
        made.output().setType(node.output().type())
        node.output().replaceAllUsesWith(made.output())
        node.destroy()
    for x in inputs if kept else []:
        none = graph.create("prim::Constant", [], 1)
        none.output().setType(torch._C.NoneType.get())
        graph.prependNode(none)
        made = graph.create("aten::clone", [x, none.output()], 1).insertAfter(none)
        made.output().setType(x.type())
        x.replaceAllUsesAfterNodeWith(made, made.output())


def _traced(part: Part, inputs: list[torch.Tensor], values: list[Value],
            unused: list[Value]) -> tuple[torch.jit.ScriptModule, bool]:
    """With whether its forward turns sizes into numbers, which the trace holds as constants."""
    given = (*(x.clone() for x in inputs), *(value.tensor for value in (*values, *unused)))
    with warnings.catch_warnings(), _Conversions() as conversions:
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        function = _Function(part, [value.name for value in values])
        try:
            traced = cast(torch.jit.ScriptModule, torch.jit.trace(function, given, check_trace=False))
        except Exception as error:  # its message may hold the whole output
            if "observable data dependence" not in str(error):
                raise Error(f"can't be cut: {part.name} can't be traced: {_first_line(error)}") from error
            raise Error(f"can't be cut: the output of {part.name} can't be traced to its input; does it use .data or "
                        "numpy? Use .detach()") from error
    if cast(Any, traced.inlined_graph).findNode("prim::PythonOp"):
        raise Error(f"can't be cut: {part.name} calls an autograd.Function, whose backward would be lost; "
                    "torch.utils.checkpoint is one: pipeline.recompute saves the same memory")
    _count_in_numbers(traced.graph)
    _reshape(traced.graph)
    arguments = list(traced.graph.inputs())[1:]
    _out_of_place(traced.graph, arguments[:len(inputs)])
    for value, argument in zip(values, arguments[len(inputs):]):
        value.fixed = value.fixed or not list(argument.uses())
    return traced, conversions.found


def _run(functions: list[Function], sample: torch.Tensor) -> torch.Tensor:
    made = {-1: sample}
    for i, part in enumerate(functions):
        made[i] = part.traced(*(made[source] for source in part.sources), *(value.tensor for value in part.values))
    return made[len(functions) - 1]


def _holds_for(sample: torch.Tensor, module: nn.Module, functions: list[Function]) -> bool:
    """Whether the parts compute what the module does, if it takes the sample: tracing turns into constants what Python
    makes of sizes."""
    try:
        whole = module(sample.clone())
    except Exception:  # it takes no such sample
        return True
    try:
        return alike(_run(functions, sample), whole)
    except RuntimeError:
        return False


def _other_gradient(module: nn.Module, functions: list[Function], sample: torch.Tensor) -> str | None:
    """The first parameter whose gradient differs between `module` and its parts: tracing sees neither torch.no_grad()
    nor backward hooks. Parameters that no gradient reaches become fixed."""
    learned = {name: one for name, one in module.named_parameters(remove_duplicate=False) if one.requires_grad}
    values = {value.name: value.tensor for part in functions for value in part.values if value.name in learned}
    taken = {id(learned[name]) for name in values}
    left = {name: one for name, one in learned.items() if id(one) not in taken}

    def gradients(output: torch.Tensor, of: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Without those that no gradient reaches."""
        weights = torch.rand(output.shape, generator=torch.Generator().manual_seed(2))
        if not of or not output.requires_grad:
            return {}
        found: Any = torch.autograd.grad((output * weights).sum(), list(of.values()), allow_unused=True)  # or None
        return {name: one for name, one in zip(of, found) if one is not None}

    def norm(gradient: torch.Tensor | float) -> float:
        return float(torch.as_tensor(gradient).square().sum().sqrt())

    for tensor in values.values():
        tensor.requires_grad_()
    try:
        with torch.enable_grad():  # type: ignore[no-untyped-call]
            try:
                whole = gradients(module(sample.clone()), {name: learned[name] for name in (*values, *left)})
            except RuntimeError:  # an operator has no gradient: the network can still predict
                return None
            parts = gradients(_run(functions, sample), values)
    except RuntimeError as error:
        raise Error(f"{type(module).__name__} can't be cut: its parts have no gradient: {_first_line(error)}") from error
    finally:
        for tensor in values.values():
            tensor.requires_grad_(False)
    for value in (value for part in functions for value in part.values):
        value.fixed = value.fixed or value.name not in parts
    for name in (*values, *left):
        got, due = parts.get(name, 0.0), whole.get(name, 0.0)
        if norm(got - due) > 0.01 * norm(got):
            return name
    return None


@alone()
@own_modes()
def export(module: nn.Module, example: torch.Tensor | None = None) -> Exported:
    """Cuts `module` into parts wherever only a single tensor (and perhaps skip connections) passes between two calls.

    `example`: a sample, [1,C,H,W] float32; None: one of 96 by 128. An nn.Sequential has one part per child, including
    nested ones, so cuts count children as its state_dict does. Raises millrace.Error for a module that can't be cut or
    has data-dependent control flow.
    """
    name = type(module).__name__
    given = example
    remarks = [text for kind, text in _REMARKS.items() if any(isinstance(child, kind) for child in module.modules())]
    module = prepared(module)
    example = example_for(module) if example is None else example.detach().to("cpu", torch.float32).clone()
    if example.dim() != 4 or example.size(0) != 1:
        raise Error(f"an example must be one sample, [1,C,H,W], not {list(example.shape)}")
    other = torch.rand(example.shape, generator=torch.Generator().manual_seed(1))
    try:
        with (_differentiable(), torch.enable_grad(), _NoValues(),  # type: ignore[no-untyped-call]
              _NoValuesInPython()):
            output = copy.deepcopy(module)(example.clone())  # it may change its input, and keep what it computes
        if isinstance(output, torch.Tensor) and output.dtype != torch.float32:
            raise Error(f"it gives {output.dtype}; end its forward with .float()")
        if own := _own_gradient(output):
            raise Error(f"{own} is an autograd.Function, whose backward would be lost")
        with _differentiable():
            if changed := _changed(module, example, other):
                raise Error(f"its forward changes {changed}; what it computes may depend on the sample alone")
    except Error as error:
        raise Error(f"{name} can't be cut: {error}") from None
    except Exception as error:
        hint = "" if given is not None else "; give an example, or --sample"
        raise Error(f"{name} takes no sample {list(example.shape)}: {_first_line(error)}{hint}") from error
    with _differentiable():
        still = _not_in_place(module)  # preferred: steps that write to views are not recorded
        if isinstance(output, torch.Tensor) and all(alike(still(sample.clone()), module(sample.clone()))
                                                    for sample in (example, other)):
            module = still
        parts = cut(module, example)
        made, functions, counts = dict[int, Any]({-1: example}), list[Function](), False
        for i, part in enumerate(parts):
            inputs = [made[source] for source in part.sources]
            values, unused = _values(part, module), _unused(parts, module) if i == 0 else []
            traced, counted = _traced(part, inputs, values, unused)
            values, counts = values + unused, counts or counted
            made[i] = traced(*inputs, *(value.tensor for value in values))
            if not isinstance(made[i], torch.Tensor):
                raise Error(f"{name} can't be cut: {part.name} gives a {type(made[i]).__name__}, not a tensor")
            functions.append(Function(part.name, part.sources, values, traced, [x.dim() for x in inputs],
                                      made[i].size(1)))
        for sample in (example, other):
            whole = module(sample.clone())
            if not whole.isfinite().all():
                raise Error(f"{name} gives numbers that are not finite: are its weights?")
            if not alike(_run(functions, sample), whole):
                raise Error(f"{name} can't be cut: its parts and the whole module give different outputs; does its "
                            "forward draw random numbers, or keep what it has seen?")
        if other_gradient := _other_gradient(module, functions, example):
            raise Error(f"{name} can't be cut: {other_gradient} has another gradient in its parts than in the whole "
                        "module; does its forward use torch.no_grad(), or has it a backward hook? To stop a gradient, "
                        "use .detach() or requires_grad_(False)")
        larger = torch.rand(*example.shape[:2], 2 * example.shape[2], 2 * example.shape[3],
                            generator=torch.Generator().manual_seed(3))
        size = list(example.shape[2:]) if counts or not _holds_for(larger, module, functions) else None
    return Exported(name, functions, list(output.shape), size, remarks)
