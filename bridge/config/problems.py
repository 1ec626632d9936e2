"""Words for what is wrong with a configuration: where it stands, which key, and how to fix it."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel

from .. import plugins
from . import Broker, Config, From
from .checks import CUSTOM
from .overrides import overridden, path_of, variable_of, variables
from .yaml import Document, Key, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pydantic_core import ErrorDetails
    from pydantic_settings import SettingsError

_TEXTS = {
    CUSTOM: "{text}",
    "missing": "is missing: add it",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "string_type": "must be text: put it in quotes",
    "string_pattern_mismatch": "may hold letters, digits, `.`, `_` and `-` only",
    "string_too_short": "must not be empty",  # no text has another least length
    "string_too_long": "must have at most {max_length} characters",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "float_parsing": "must be a number",
    "bool_parsing": "must be true or false",
    "path_type": "must be a path, as text",
    "path_not_file": "there is no such file, or this user may not see it",
    "dict_type": "must be a mapping of `key: value` lines",
    "model_type": "must be a mapping of `key: value` lines",
    "model_attributes_type": "must be a mapping of `key: value` lines",
    "tuple_type": "must be a list: lines that begin with `- `",
    "list_type": "must be a list: lines that begin with `- `",
    "too_short": "is too short: at least {min_length} are needed",
    "byte_size": "must be a size, such as 512MiB or 2GB",
    "byte_size_unit": "must be a size, such as 512MiB or 2GB",
    "value_error": "{error}",
}

_PLAIN = frozenset({"str", "int", "float", "bool"})
"""What pydantic calls an alternative of a type that is a plain value; all others bear brackets."""


def worded(
    errors: Iterable[ErrorDetails], document: Document, overrides: Mapping[str, Any], environment: Mapping[str, str]
) -> list[Problem]:
    """Pydantic's errors as problems in `document`, or in the variables that went before it (`overrides`).

    The alternatives of one key become one problem. Where a variable is to blame, its name stands first in the problem's key.
    """
    data = overridden(document.data, overrides)
    texts: dict[Key, list[str]] = {}
    for error in errors:
        key = _written(error["loc"], data)
        texts.setdefault(key, []).append(_text(error, key, data))
    problems = []
    for key, alternatives in texts.items():
        text = "; or it ".join(dict.fromkeys(alternatives))
        variable = variable_of(key, document.data, overrides, environment)
        if variable is None:
            problems.append(Problem(_line_of(key, document), key, text))
        else:
            path = path_of(variable)
            inside = all(part == str(own) for part, own in zip(path, key, strict=False))
            problems.append(Problem(0, (variable, *(key[len(path) :] if inside else key)), text))
    return problems


def _written(key: Key, data: Any) -> Key:
    """The key less what pydantic appends to tell the alternatives of a type apart."""
    for length, part in enumerate(key):
        appended = "[" in str(part) or part in _PLAIN
        if (appended and not (isinstance(data, dict) and part in data)) or not isinstance(data, dict | list | None):
            return key[:length]
        data = _below(data, part)
    return key


def _below(section: Any, part: str | int) -> Any:
    """What stands there; None where nothing does, or not in the shape that it should have."""
    if isinstance(section, dict):
        return section.get(part)
    return section[part] if isinstance(section, list) and isinstance(part, int) and part < len(section) else None


def _text(error: ErrorDetails, key: Key, data: dict[str, Any]) -> str:
    if error["type"] == "extra_forbidden":
        return _unknown(str(key[-1]), _names(_model_at(key[:-1], data)))
    return plain(error)


def plain(error: ErrorDetails) -> str:
    """What a value must be, without pydantic's talk of inputs and parsing, where that is known."""
    if error["type"] in _TEXTS:
        return _TEXTS[error["type"]].format_map(error.get("ctx", {}))
    return error["msg"]


def placed(key: Key, text: str, document: Document) -> Problem:
    """A problem at this key of the document, or where the next larger section begins that stands in it."""
    return Problem(_line_of(key, document), key, text)


def unknown_variables(environment: Mapping[str, str]) -> list[Problem]:
    """Variables that look like overrides and are none."""
    strays = [name for name in variables(environment) if path_of(name)[0] not in Config.model_fields]
    return [Problem(0, (name,), _unknown("__".join(path_of(name)), Config.model_fields)) for name in strays]


def line(problem: Problem, file: Path | None, environment: Mapping[str, str]) -> str:
    """A problem as a line: `file:line: key: text`, or with the variable that the value came from, and what of the key is inside of that."""
    first = str(problem.key[0]) if problem.key else ""
    if first in variables(environment):
        place, key = first, _dotted(problem.key[1:])
    else:
        place, key = f"{file}:{problem.line}" if file and problem.line else str(file or ""), _dotted(problem.key)
    return ": ".join(part for part in (place, key, problem.text) if part)


def _dotted(key: Key) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key).lstrip(".")


def not_json(error: SettingsError, environment: Mapping[str, str]) -> Problem:
    """A list or a mapping in the environment that pydantic-settings cannot read; it names the field only."""
    text = "is not JSON: a list or a mapping as a whole is written as JSON in the environment"
    return next(
        (Problem(0, (name,), text) for name in variables(environment) if _field(name) in str(error)),
        Problem(0, (), f"{error}: it {text}"),
    )


def _field(name: str) -> str:
    """A variable's whole key, in the quotes that pydantic-settings puts around a field."""
    return f'"{"__".join(path_of(name))}"'


def _line_of(key: Key, document: Document) -> int:
    while key not in document.lines:
        key = key[:-1]
    return document.lines[key]


def _unknown(key: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(key, names, n=1)
    hints = [f"did you mean `{close[0]}`?"] if close else []
    if names:
        hints.append(f"known keys: {', '.join(names)}")
    return "; ".join(["unknown key", " ".join(hints)]) if hints else "unknown key"


def _names(model: type[BaseModel] | None) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()] if model else []


def _model_at(key: Key, root: dict[str, Any]) -> type[BaseModel] | None:
    """The model that describes the section at `key`; None where there is none."""
    kind: Any = Config
    section: Any = root
    for part in key:
        section = _below(section, part)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            kind = next((field.annotation for name, field in kind.model_fields.items() if part == (field.alias or name)), None)
        else:
            kind = _models_in(kind)
        kind = _adapters_own(kind, section, root)
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else _models_in(kind)


def _models_in(kind: Any) -> type[BaseModel] | None:
    return next((each for each in get_args(kind) if isinstance(each, type) and issubclass(each, BaseModel)), None)


def _adapters_own(kind: Any, section: Any, root: dict[str, Any]) -> Any:
    """The model of a section: of a broker, and of where a route reads, that of the broker's adapter; None where the broker's type is not known."""
    if kind not in (Broker, From):
        return kind
    broker = section if kind is Broker else _below(_below(root, "brokers"), _below(section, "broker"))
    try:
        adapter = plugins.adapter(str(_below(broker, "type")))
    except plugins.UnusableAdapter:
        return None
    return adapter.options if kind is Broker else adapter.endpoint
