"""What a reload changes, and which of it a running daemon can take over."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from . import Config

RELOADABLE = ("limits.*", "retry.*", "logs.level", "shutdown_timeout", "routes.*.allow_to", "routes.*.dead_letter")
"""Keys that take effect by SIGHUP; all others need a restart."""


BESIDE = ("options", "endpoint")
"""Fields of ours whose keys stand beside the others in the file: those of a broker's type, and of the place where a route reads."""


class Changes(NamedTuple):
    """Keys that differ, in order; never their values, which may be secret."""

    reloadable: tuple[str, ...]
    needs_restart: tuple[str, ...]


def changes(old: Config, new: Config) -> Changes:
    """Compare two configurations. A route is known by its name, whatever its place in the list."""
    levels = "limits" if old.store.levels is new.store.levels is None else "store"
    keys = sorted(_differing(_tree(old, levels), _tree(new, levels), ""))
    fixed = {f"routes.{route.name}" for route in (*old.routes, *new.routes)}  # a route as a whole, even one that is called `a.allow_to`
    if new.store.kind == "level_queues":
        fixed.add("limits.levels")  # each level is a queue
    reloadable = tuple(key for key in keys if key not in fixed and any(fnmatchcase(key, pattern) for pattern in RELOADABLE))
    return Changes(reloadable, tuple(key for key in keys if key not in reloadable))


def _tree(config: Config, levels: str) -> dict[str, Any]:
    """The settings as a tree of keys, with the delay levels, which two sections can say, in the section `levels` alone."""
    tree: dict[str, Any] = _plain(config)
    for section in ("limits", "store"):
        del tree[section]["levels"]
    tree[levels]["levels"] = config.limits.levels
    return tree | {"routes": {route.name: _plain(route) for route in config.routes}}


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        keys = {field.alias or name: _plain(getattr(value, name)) for name, field in type(value).model_fields.items()}
        for name in BESIDE:
            keys |= keys.pop(name, None) or {}
        return keys
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value


def _differing(old: dict[str, Any], new: dict[str, Any], prefix: str) -> Iterator[str]:
    for name in old.keys() | new.keys():
        before, after = old.get(name), new.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _differing(before, after, f"{prefix}{name}.")
        elif before != after:
            yield f"{prefix}{name}"
