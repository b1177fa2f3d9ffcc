"""Keyword arguments as the program's config keys."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, cast

from millrace import _millrace
from millrace._error import Error, nearest

Table = Mapping[str, Any]
_KEYS = _millrace.config_keys()
_TABLES = sorted({key.split(".")[0] for key in _KEYS if "." in key})


def toml(value: Any) -> str:
    """A value as TOML on one line."""
    if hasattr(value, "tolist"):  # of numpy or PyTorch
        value = value.tolist()
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, (int, str, os.PathLike)):
        text = json.dumps(value, default=os.fspath, ensure_ascii=False)
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise Error(f"{value!a}: a config holds UTF-8")
        return text
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} = {toml(item)}" for name, item in cast(Table, value).items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml, cast(Iterable[Any], value))) + "]"
    raise Error(f"a config has no values of type {type(value).__name__}")


def _keys_of(name: str) -> list[str]:
    """The keys called `name`. Among several, the pipeline's wins, then the model's."""
    keys = [key for key in _KEYS if key.split(".")[-1] == name]
    return next(([key] for key in (f"pipeline.{name}", f"model.{name}") if key in keys), keys)


def settings(tables: Table) -> list[tuple[str, str | bytes]]:
    """(key, TOML) of each entry: a table as a dict, a table by its `kind`, or a single key. None: left at its default."""
    found: list[tuple[str, Any]] = []
    for name, value in tables.items():
        if value is None and name in _TABLES:
            continue
        if "." in name:
            found.append((name, value))
        elif name in _TABLES and isinstance(value, Mapping):
            found += [(f"{name}.{key}", item) for key, item in cast(Table, value).items()]
        elif name in _TABLES and f"{name}.kind" in _KEYS and isinstance(value, str):
            found.append((f"{name}.kind", value))
        elif name in _TABLES:
            raise Error(f"{name}: must be a dict of its keys" + (
                ", or its kind as a word" if f"{name}.kind" in _KEYS else ""))
        elif len(keys := _keys_of(name)) == 1:
            found.append((keys[0], value))
        elif keys:
            raise Error(f"{name}: is a key of several tables, {', '.join(keys)}: give the table as a dict")
        else:
            names = _TABLES + [key.split(".")[-1] for key in _KEYS]
            raise Error(f"unknown key {name}; the nearest is {nearest(name, names)}")
    return [(key, _text(key, value)) for key, value in found if value is not None]


def _text(key: str, value: Any) -> str | bytes:
    try:
        return toml(value)
    except Error as error:
        if key == "source.uri" and isinstance(value, (str, os.PathLike)):
            # A bare word, as the name of a file need not be UTF-8.
            return os.fsencode(cast("str | os.PathLike[str]", value))
        raise Error(f"{key}: {error}") from None
