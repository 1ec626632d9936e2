"""Patches modules as they are imported: an application does not import three clients to use one."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

Patches = dict[str, Callable[[ModuleType], None]]


class _Loader:
    """The module's own loader, and the patch after it."""

    def __init__(self, loader: Any, patch: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._patch = patch

    def __getattr__(self, name: str) -> Any:
        """All else that it can do: who looks for the module only (pkgutil.get_data) asks for that."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader  # whoever asks later (importlib.resources, inspect) sees nothing of this
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _apply(self._patch, module)


class _Finder:
    """Finds by means of the other finders. One that does so as well (slipcover's, that of another copy of this module) asks this one in its turn."""

    patches: Patches = {}  # noqa: RUF012 - there is one finder

    def __init__(self) -> None:
        self._of_thread = threading.local()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        sought: set[str] = vars(self._of_thread).setdefault("sought", set())
        if name not in self.patches or name in sought:
            return None
        sought.add(name)
        try:
            return self._find(name, path, target)
        finally:
            sought.discard(name)

    def _find(self, name: str, path: Any, target: Any) -> Any:
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None and finder is not self else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self.patches[name])
                return spec
        return None


_FINDER: Any = _Finder()


def _apply(patch: Callable[[ModuleType], None], module: ModuleType) -> None:
    """What cannot be patched must not send: without its patch it would send delayed messages at once."""
    try:
        patch(module)
    except (AttributeError, KeyError) as error:
        error.add_note(
            f"delaybridge cannot instrument this version of {module.__name__.partition('.')[0]}: docs/interception.md names those that it can"
        )
        raise


def start(patches: Patches) -> None:
    """Patch these modules: now if they are loaded, else when they are. A patch may be called more than once."""
    _FINDER.patches = patches
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    for name, patch in patches.items():
        if _is_there(name):
            _apply(patch, importlib.import_module(name))  # which waits where another thread is still importing it


def stop() -> list[ModuleType]:
    """Patch nothing more; returns the modules that are loaded."""
    loaded = [sys.modules[name] for name in _FINDER.patches if _is_there(name)]
    _FINDER.patches = {}
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)
    return loaded


def _is_there(name: str) -> bool:
    """Whether it is loaded. What tests put in its place, a mock or None (as if it were not installed), sends nothing."""
    return isinstance(sys.modules.get(name), ModuleType)
