"""A TorchScript module as an ONNX model, for `millrace export`."""

import contextlib
import io
import warnings
from typing import cast

import onnx
import torch

from millrace._error import fail
from millrace._export import write_whole


def widened(module: "torch.jit.ScriptModule") -> "torch.jit.ScriptModule":
    """Expands strides and sizes given as one number to the two that ONNX wants. In place."""
    graph = module.graph
    torch._C._jit_pass_inline(graph)
    for node in graph.nodes():
        if node.kind() not in ("aten::_convolution", "aten::convolution", "aten::max_pool2d", "aten::avg_pool2d"):
            continue
        for value in node.inputs():
            made = value.node()
            if made.kind() == "prim::ListConstruct" and made.inputsSize() == 1:
                made.addInput(made.inputsAt(0))  # type: ignore[arg-type]
    return module


def main(net: str, out: str, *shape: str) -> int:
    """Writes `out`, for samples of `shape`: channels, height, width. Returns the exit code."""
    made = io.BytesIO()
    torch._C._jit_set_onnx_log_enabled(False)  # whole graphs
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")  # the exporter's, about itself
            network = cast("torch.jit.ScriptModule", torch.jit.load(net))
            torch.onnx.export(widened(network), (torch.zeros(1, *map(int, shape)),),
                              made,  # type: ignore[arg-type]
                              dynamo=False, opset_version=18, input_names=["frame"], output_names=["prediction"])
    except Exception as error:  # the exporter raises many kinds
        why = " ".join(str(error).split()).split(" [Caused by")[0].split(". Please feel free")[0]
        named = torch.onnx.errors.UnsupportedOperatorError
        return fail(f"--onnx: {'ONNX has no such operator: ' if isinstance(error, named) else ''}{why}")
    model = onnx.load_from_string(made.getvalue())
    onnx.checker.check_model(model)
    try:
        write_whole(out, made.getvalue())
    except OSError as error:
        return fail(f"--onnx: {out}: {error.strerror}")
    print(f"{out}: {len(model.graph.node)} operators of ONNX {model.opset_import[0].version}")
    return 0
