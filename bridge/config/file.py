"""Reads the configuration: file, environment, adapters; says every problem at once as `file:line: key: what and how to fix it`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from . import PREFIX, Config, Http, Limits
from .problems import line, unknown_variables, worded
from .yaml import Document, Problem, read

DEFAULT_FILE = Path("delaybridge.yaml")
_Settings = TypeVar("_Settings", bound=BaseSettings)


class ConfigError(Exception):
    """The configuration cannot be used; `problems` are lines for the operator."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class _Parts(BaseSettings):
    """What commands need that talk to no broker, so that they load no adapter."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True, env_prefix=PREFIX, env_nested_delimiter="__")
    http: Http = Http()
    limits: Limits = Limits()


def find(path: Path | None) -> Path | None:
    """The file to read: the one that was named, here or in DELAYBRIDGE_CONFIG, or `./delaybridge.yaml` where there is one."""
    named = path or (Path(os.environ["DELAYBRIDGE_CONFIG"]) if os.environ.get("DELAYBRIDGE_CONFIG") else None)
    return named or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)


def load(path: Path | None = None) -> Config:
    """The whole configuration, checked. Raises ConfigError with everything that is wrong with it."""
    file = find(path)
    document = _document(file)
    config = _validated(Config, document, document.problems + unknown_variables(os.environ), file)
    return config.read_from(file)


def load_http(path: Path | None = None) -> Http:
    """The `http` section alone, whatever is wrong elsewhere. Raises ConfigError."""
    return _part(path, "http").http


def load_limits(path: Path | None = None) -> Limits:
    """The `limits` section alone, whatever is wrong elsewhere. Raises ConfigError."""
    return _part(path, "limits").limits


def _part(path: Path | None, name: str) -> _Parts:
    file = find(path)
    document = _document(file)
    relevant = [problem for problem in document.problems if problem.key[:1] in ((), (name,))]
    only = document._replace(data={key: value for key, value in document.data.items() if key == name})
    return _validated(_Parts, only, relevant, file)


def _document(file: Path | None) -> Document:
    if file is None:
        return Document({}, {(): 0}, [])
    try:
        return read(file.read_text(), os.environ)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ConfigError([f"{file}: cannot be read: {reason}"]) from error


def _validated(model: type[_Settings], document: Document, problems: list[Problem], file: Path | None) -> _Settings:
    known = {problem.key for problem in problems}
    try:
        config = model(**document.data)
    except ValidationError as error:
        found = worded(error.errors(include_url=False), document)
        problems = problems + [problem for problem in found if problem.key not in known]
    except SettingsError as error:
        problems = [*problems, Problem(0, (), f"{error}; lists and mappings in the environment are written as JSON")]
    else:
        if not problems:
            return config
    raise ConfigError([line(problem, file, os.environ) for problem in sorted(problems, key=lambda each: each.line)])
