"""`python -m millrace.export FILE.py:FUNCTION -o net.pt`: writes a PyTorch module as a file for the program."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from typing import Any, cast

import torch

from millrace._error import Error
from millrace._export import export


def _made_by(where: str) -> tuple[torch.nn.Module, torch.Tensor | None]:
    """Calls FILE.py:FUNCTION, which returns a module or (module, example)."""
    path, _, name = where.rpartition(":")
    if not path or not os.path.isfile(path):
        raise Error(f"{where}: no such file; write FILE.py:FUNCTION")
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(path))[0], path)
    if spec is None or spec.loader is None:
        raise Error(f"{path}: not a Python file")
    file = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = file
    spec.loader.exec_module(file)
    if not callable(getattr(file, name, None)):
        raise Error(f"{path}: has no function {name}")
    made: Any = getattr(file, name)()
    module, example = cast(tuple[Any, Any], made) if isinstance(made, tuple) else (made, None)
    if not isinstance(module, torch.nn.Module):
        raise Error(f"{where}: gives a {type(module).__name__}, not a torch.nn.Module")
    return module, example


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m millrace.export",
        description="Writes a PyTorch module as a file for [model] preset = \"file\".",
        epilog="The file is TorchScript, and so code: load only what you would run.")
    parser.add_argument("function", metavar="FILE.py:FUNCTION",
                        help="returns the module, or (module, example)")
    parser.add_argument("-o", "--output", required=True, metavar="net.pt")
    parser.add_argument("--sample", metavar="CxHxW", help="a sample's shape (default: the example's, else 3x96x128)")
    asked = parser.parse_args(arguments)
    source = asked.function.rpartition(":")[0]
    try:
        if os.path.exists(asked.output) and os.path.exists(source) and os.path.samefile(asked.output, source):
            raise Error(f"{asked.output}: would replace {source}")
        if not asked.output.lower().endswith(".pt"):
            raise Error(f"{asked.output}: is TorchScript: call it FILE.pt")
        module, example = _made_by(asked.function)
        if asked.sample:
            sides = asked.sample.split("x")
            if len(sides) != 3 or not all(side.isdigit() and int(side) > 0 for side in sides):
                raise Error(f"--sample {asked.sample}: must be CxHxW, as 3x96x128")
            example = torch.rand(1, *map(int, sides), generator=torch.Generator().manual_seed(0))
        exported = export(module, example)
        exported.save(asked.output)
    except Error as error:
        print(f"millrace.export: error: {error}", file=sys.stderr)
        return 2
    print(exported)
    for line in exported.remarks:
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
sys.modules[__name__] = export  # type: ignore[assignment]  # once imported, millrace.export is still the function
