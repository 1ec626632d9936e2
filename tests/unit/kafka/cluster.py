"""Putting a stand-in where the adapter opens a connection to ask a cluster."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    import pytest


def asked_by(monkeypatch: pytest.MonkeyPatch, module: ModuleType, cluster: Any) -> None:
    """Whatever that module of the adapter opens is this cluster."""

    @contextlib.contextmanager
    def opened(_: Any) -> Iterator[Any]:
        yield cluster

    monkeypatch.setattr(module, "opened", opened)
