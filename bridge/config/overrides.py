"""The environment's `DELAYBRIDGE__A__B`: the keys that they override, and which of them a value came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .yaml import Key


def path_of(name: str) -> tuple[str, ...]:
    """The key that a variable overrides."""
    return tuple(name[len(PREFIX) :].lower().split("__"))


def variables(environment: Iterable[str]) -> list[str]:
    """Those that look like overrides: pydantic-settings reads small letters as well."""
    return [name for name in environment if name.upper().startswith(PREFIX)]


def overridden(data: Any, overrides: Any) -> Any:
    """The data as it is validated: with the environment's keys in it."""
    if not isinstance(data, dict) or not isinstance(overrides, dict):
        return overrides
    return data | {key: overridden(data.get(key), value) for key, value in overrides.items()}


def variable_of(key: Key, data: Any, overrides: Any, environment: Mapping[str, str]) -> str | None:
    """The variable that the value at `key` came from: one that overrides the key, or a key above it, or a key that is missing in the value.

    Where nothing but variables made a section, one of these is blamed for what the section lacks. `data` is what the file holds. None where the value is the
    file's; a variable for one key of a section in the file does not count for the others.
    """
    made = _overriding(key, data, overrides)
    if made is None:
        return None
    parts, section = tuple(map(str, key)), tuple(map(str, made))
    paths = {name: path_of(name) for name in variables(environment)}
    above = [name for name, path in paths.items() if path == parts[: len(path)]]
    below = [name for name, path in paths.items() if section == path[: len(section)]]
    return max(above, key=lambda name: len(paths[name]), default=next(iter(below), None))


def _overriding(key: Key, data: Any, overrides: Any) -> Key | None:
    """How far down to `key` the environment's value stands, not the file's; None where that is a section in which both have keys, or the file's."""
    for depth, part in enumerate(key):
        if not isinstance(data, dict) or not isinstance(overrides, dict):
            return key[:depth]
        if part not in overrides:
            return None
        if part not in data:
            return key[: depth + 1]
        data, overrides = data[part], overrides[part]
    return key if not isinstance(data, dict) or not isinstance(overrides, dict) else None
