"""Reads the configuration: file, environment, adapters; says every problem at once as `file:line: key: what and how to fix it`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from . import PREFIX, Config, Http, Limits
from .environment import Environment, Overridden
from .problems import line, not_json, placed, unknown_variables, worded
from .sections import StoreLevels
from .yaml import Document, Problem, read

DEFAULT_FILE = Path("delaybridge.yaml")
BROKERLESS = "it names no broker: the bridge runs on the in-process one, which keeps nothing for others"
_LARGEST = 10 << 20
"""Characters at most: a device file has no end."""
_Settings = TypeVar("_Settings", bound=BaseSettings)


class ConfigError(Exception):
    """The configuration cannot be used; `problems` are lines for the operator."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class _Parts(Overridden):
    """What commands need that talk to no broker, so that they load no adapter."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True, env_prefix=PREFIX, env_nested_delimiter="__")
    http: Http = Http()
    limits: Limits = Limits()
    store: StoreLevels = StoreLevels()

    @model_validator(mode="after")
    def _levels_of_the_store(self) -> Self:
        self.__dict__["limits"] = self.limits.with_levels(self.store.levels)
        return self


def find(path: Path | None) -> Path | None:
    """The file to read: the one that was named, here or in DELAYBRIDGE_CONFIG, or `./delaybridge.yaml` where there is one."""
    named = path or (Path(os.environ["DELAYBRIDGE_CONFIG"]) if os.environ.get("DELAYBRIDGE_CONFIG") else None)
    return named or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)


def load(path: Path | None = None) -> Config:
    """The whole configuration, checked. Raises ConfigError with everything that is wrong with it."""
    file = find(path)
    document = _document(file)
    config = _validated(Config, document, document.problems + unknown_variables(os.environ), file)
    if file is not None and not document.data and config.embedded:
        raise ConfigError(
            [f"{file}: is empty: name brokers and routes in it; to try the bridge out on the in-process broker, give it no file"]
        )
    return config.read_from(file, names_brokers=bool(document.data.get("brokers")))


def check(path: Path | None = None) -> Config:
    """As `load`, and what brokers' clients read from files at each connection can be used as it is now. The bridge itself starts without, and tries again."""
    config = load(path)
    document = _document(config.file)
    found = {("brokers", name, key): text for name, broker in config.brokers.items() for key, text in broker.unusable()}
    if found:
        raise ConfigError([line(placed(key, text, document), config.file, os.environ) for key, text in found.items()])
    return config


def checked(config: Config) -> str:
    """What a check says of a valid configuration: a file without a broker is allowed, but hardly intended."""
    if not config.brokerless:
        return f"{origin(config)}: ok"
    return f"{origin(config)}: ok, but {BROKERLESS}"


def origin(config: Config) -> str:
    """Where a configuration comes from, for people."""
    if config.file is not None:
        return str(config.file)
    return f"no {DEFAULT_FILE} here: the in-process broker, for trying out" if config.embedded else "the environment's variables"


def load_http(path: Path | None = None) -> Http:
    """The `http` section alone, whatever is wrong elsewhere. Raises ConfigError."""
    return _part(path, ("http",)).http


def load_limits(path: Path | None = None) -> Limits:
    """The `limits` section alone, with `store.levels`, whatever is wrong elsewhere. Raises ConfigError."""
    return _part(path, ("limits",), ("store", "levels")).limits


def in_level_queues(path: Path | None = None) -> bool:
    """Whether messages wait in level queues, whatever is wrong elsewhere. Raises ConfigError."""
    return bool(_part(path, ("store", "kind")).store.kind == "level_queues")


def _part(path: Path | None, *keys: tuple[str, ...]) -> _Parts:
    file = find(path)
    document = _document(file)
    relevant = [problem for problem in document.problems if not problem.key or any(problem.key[: len(key)] == key for key in keys)]
    data = {name: value for key in keys for name, value in _only(document.data, key).items()}
    return _validated(_Parts, document._replace(data=data), relevant, file)


def _only(data: Any, key: tuple[str, ...]) -> dict[str, Any]:
    """What stands at this key, at its place; empty where nothing does."""
    name, rest = key[0], key[1:]
    if not isinstance(data, dict) or name not in data:
        return {}
    return {name: _only(data[name], rest) if rest else data[name]}


def _document(file: Path | None) -> Document:
    if file is None:
        return Document({}, {(): 0}, [])
    try:
        with file.open() as opened:
            text = opened.read(_LARGEST + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ConfigError([f"{file}: cannot be read: {reason}"]) from error
    if len(text) > _LARGEST:
        raise ConfigError([f"{file}: is not a configuration: it has more than {_LARGEST >> 20} MiB"])
    return read(text, os.environ)


def _validated(model: type[_Settings], document: Document, problems: list[Problem], file: Path | None) -> _Settings:
    known = {problem.key for problem in problems}
    try:
        config = model(**document.data)
    except ValidationError as error:
        found = worded(error.errors(include_url=False), document, Environment(model)(), os.environ)
        problems = problems + [problem for problem in found if problem.key not in known]
    except SettingsError as error:
        problems = [*problems, not_json(error, os.environ)]
    else:
        if not problems:
            return config
    raise ConfigError([line(problem, file, os.environ) for problem in sorted(problems, key=lambda each: each.line)])
