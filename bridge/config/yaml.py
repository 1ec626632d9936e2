"""YAML with the line of every key, and `${VAR}` filled in.

    ${VAR}          the environment's VAR, or what the file named by VAR_FILE holds; undefined is a problem
    ${VAR:default}  the same, or `default` (which may be empty)
    $${             a plain `${`

What was filled in stays text, so that a password of digits is no number.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

Key = tuple[str | int, ...]
_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::(-?)([^}]*))?\}|\$\{")
"""`:-` is how shells and Compose write a default, and there it stands for an empty variable, too."""
_OTHER_BASE = re.compile(r"[+-]?0[0-9_xb]|.*:")
"""Of numbers: what YAML 1.1 reads as octal, hexadecimal, binary or sexagesimal, and hardly anybody means so."""
_SECRET = re.compile(r"(password|passcode|passphrase|secret|token)[\"']?\s*:", re.IGNORECASE)
"""A line, or a key with its colon, whose value is not shown. What YAML quotes is that or a part of it: `!x` in `password: !x` is a tag, `*x` an alias."""
_QUOTED = re.compile(r"'.*'")


class Problem(NamedTuple):
    """Something wrong with a file: its line (0 for the file as a whole), the key, and what to do."""

    line: int
    key: Key
    text: str


class Document(NamedTuple):
    """Plain data, and the line of each key in it."""

    data: dict[str, Any]
    lines: dict[Key, int]
    problems: list[Problem]


def read(text: str, environment: Mapping[str, str]) -> Document:
    """Read one YAML mapping. Problems are collected, never raised."""
    document = Document({}, {(): 1}, [])
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        value = _Reader(document, loader, environment).value(node, ()) if node is not None else {}
    except yaml.YAMLError as error:
        document.problems.append(_not_yaml(error, text))
        return document
    except RecursionError:
        document.problems.append(Problem(0, (), "is nested too deep"))
        return document
    if isinstance(value, dict):
        document.data.update(value)
    else:
        document.problems.append(Problem(1, (), "must be a mapping of `key: value` lines"))
    return document


def _not_yaml(error: yaml.YAMLError, text: str) -> Problem:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return Problem(0, (), f"is not YAML: {' '.join(str(error).split())}")
    number = error.problem_mark.line + 1
    line = "".join(text.splitlines()[number - 1 : number])
    secret = _SECRET.search(line) is not None
    said = error.problem or ""
    if said.startswith("but "):  # the other half of the sentence
        said = f"{error.context}, {said}"
    said = _QUOTED.sub("'***'", said) if secret else said
    hint = "; put the secret in quotes" if secret else ""
    if "${" in line:
        hint = "; inside { } and [ ], put a value that holds ${ } in quotes"
    return Problem(number, (), f"is not YAML: {said}{hint}")


class _Reader:
    """Turns YAML nodes into data, noting lines and problems in `document`."""

    def __init__(self, document: Document, loader: yaml.SafeLoader, environment: Mapping[str, str]) -> None:
        self._document = document
        self._loader = loader
        self._environment = environment
        self._open: list[yaml.Node] = []
        self._flat: set[yaml.Node] = set()

    def value(self, node: yaml.Node, key: Key) -> Any:
        """The data below a node. Raises yaml.YAMLError for what is no plain data."""
        if isinstance(node, yaml.ScalarNode):
            return self._filled(node, key) if "${" in node.value else self._plain(node, key)
        if any(each is node for each in self._open):
            raise yaml.MarkedYAMLError(problem="an alias stands inside of what it names", problem_mark=node.start_mark)
        self._open.append(node)
        inside = self._mapping(node, key) if isinstance(node, yaml.MappingNode) else self._sequence(node, key)
        self._open.pop()
        return inside

    def _plain(self, node: yaml.ScalarNode, key: Key) -> Any:
        try:
            value = self._loader.construct_object(node)
        except (
            ValueError,
            ArithmeticError,
            LookupError,
            AttributeError,
        ) as error:  # whatever PyYAML's conversions meet: 2024-02-30, !!bool maybe
            kind = str(node.tag).rpartition(":")[2]
            problem = f"{node.value!r:.80} looks like a value of type {kind} and is not: put it in quotes if text is meant"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from error
        if isinstance(value, int | float) and _OTHER_BASE.match(node.value):
            hint = "write a plain number, a duration with its unit, such as 1h, or text in quotes"
            shown = "it is a number" if key and _SECRET.search(f"{key[-1]}:") else f"{node.value!r:.80} is the number {value}"
            return self._problem(node, key, f"{shown} in YAML, which does not read it as decimal: {hint}")
        return value

    def _sequence(self, node: yaml.Node, key: Key) -> list[Any]:
        return [self._item(item, (*key, index)) for index, item in enumerate(node.value)]

    def _item(self, node: yaml.Node, key: Key) -> Any:
        self._document.lines[key] = node.start_mark.line + 1
        return self.value(node, key)

    def _mapping(self, node: yaml.MappingNode, key: Key) -> dict[str, Any]:
        if node not in self._flat:  # an alias leads here again; what was merged in by `<<` stands beside what goes before it by now
            self._refuse_doubles(node, key)
            self._loader.flatten_mapping(node)
            self._flat.add(node)
        found: dict[str, Any] = {}
        for name_node, value_node in node.value:
            if _bare(name_node, value_node):
                self._problem(name_node, key, "holds a key without a colon: inside of { } a value that holds a comma must be in quotes")
                continue
            name = str(name_node.value)
            self._document.lines[(*key, name)] = name_node.start_mark.line + 1
            found[name] = self.value(value_node, (*key, name))
        return found

    def _refuse_doubles(self, node: yaml.MappingNode, key: Key) -> None:
        seen: dict[str, int] = {}
        for name_node, _ in node.value:
            if not isinstance(name_node, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key must be plain text", problem_mark=name_node.start_mark)
            line, name = name_node.start_mark.line + 1, str(name_node.value)
            if name in seen:
                self._document.problems.append(Problem(line, (*key, name), f"stands on line {seen[name]} already: keep one of the two"))
            seen[name] = line

    def _filled(self, node: yaml.Node, key: Key) -> str:
        def fill(match: re.Match[str]) -> str:
            name, dash, default = match.groups()
            if match[0] == "$${":
                return "${"
            try:
                found = self._variable(name) if name else None
            except (OSError, UnicodeDecodeError) as error:
                return self._problem(node, key, f"{name}_FILE cannot be read: {error}")
            if dash and not found:
                found = None
            if found is not None or default is not None:
                return default if found is None else found
            return self._problem(node, key, _unfilled(name))

        return _VARIABLE.sub(fill, str(node.value))

    def _variable(self, name: str) -> str | None:
        file = self._environment.get(f"{name}_FILE")
        if name in self._environment or not file:
            return self._environment.get(name)
        return Path(file).read_text().rstrip("\r\n")

    def _problem(self, node: yaml.Node, key: Key, text: str) -> str:
        self._document.problems.append(Problem(node.start_mark.line + 1, key, text))
        return ""


def _bare(name: yaml.Node, value: yaml.Node) -> bool:
    """Whether it is a key without a colon, such as `def` in `{password: abc,def}`: no key is meant so, and it may be a part of a secret."""
    between = slice(name.end_mark.pointer, value.start_mark.pointer)
    return value.start_mark.index == value.end_mark.index and ":" not in (value.start_mark.buffer or "")[between]


def _unfilled(name: str | None) -> str:
    if name is None:
        return "`${` begins a variable that does not end: write ${NAME} or ${NAME:default}, or $${ for a plain ${"
    return f"${{{name}}} is not set: set it in the environment, set {name}_FILE, or give a default: ${{{name}:default}}"
