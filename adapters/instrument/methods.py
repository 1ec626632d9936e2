"""Replaces methods of a class in place, and puts them back."""

from __future__ import annotations

import functools
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_MARK = "_delaybridge_replaces"


def replace(owner: type, name: str, wrap: Callable[[Any], Any]) -> None:
    """Put `wrap(method)` in the method's place; does nothing where that was done before."""
    method = owner.__dict__[name]
    if not hasattr(method, _MARK):
        replacement = wrap(_callable(method))
        replacement.__wrapped__ = method
        setattr(replacement, _MARK, method)
        setattr(owner, name, replacement)


def _callable(method: Any) -> Callable[..., Any]:
    """What takes the object as its first argument. A wrapper that wrapt made (OpenTelemetry's, ddtrace's) knows its object only where it is bound."""
    if type(method) is FunctionType:  # wrapt's claim to be instances of it
        return method

    @functools.wraps(method)
    def bind(this: Any, *args: Any, **kwargs: Any) -> Any:
        return method.__get__(this, type(this))(*args, **kwargs)

    return bind


def restore(owner: type, name: str) -> None:
    """Put the method back. One that somebody else wrapped meanwhile stays: without a rule it diverts nothing.

    `functools.wraps` copies our mark into theirs, but what theirs wraps is ours. A mock has whatever mark it is asked for, and wraps nothing;
    nor has one in the place of the class the method.
    """
    method = owner.__dict__.get(name)
    replaced = getattr(method, _MARK, None)
    if replaced is not None and getattr(method, "__wrapped__", None) is replaced:
        setattr(owner, name, replaced)
