"""Checks that several sections of the configuration share."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

FILE = "_file"
CUSTOM = "delaybridge"
"""The error type of refusals whose text needs no translation."""


def refuse(key: tuple[str | int, ...], text: str) -> NoReturn:
    """Report a problem at a key below the section that is being validated. Braces in `text` mean nothing."""
    problem = PydanticCustomError(CUSTOM, "{text}", {"text": text})
    raise ValidationError.from_exception_data("configuration", [InitErrorDetails(type=problem, loc=key, input=None)])


def with_secret_files(data: Any, model: type[BaseModel]) -> Any:
    """The section with each `KEY_file: PATH` replaced by `KEY` and what the file holds, less the line break at its end.

    Holds for every text key of `model`, unless the model has a key of that very name. Data that is no mapping comes back as it is.
    """
    if not isinstance(data, dict):
        return data
    keys = {field.alias or name for name, field in model.model_fields.items()}
    files = {key for key in data if isinstance(key, str) and key.endswith(FILE) and key not in keys and key.removesuffix(FILE) in keys}
    rest = {key: value for key, value in data.items() if key not in files}
    return rest | {key.removesuffix(FILE): _content(data, key) for key in files}


def _content(data: dict[str, Any], key: str) -> str:
    if data.get(key.removesuffix(FILE)) is not None:
        refuse((key,), f"{key.removesuffix(FILE)} is given as well: keep one of the two")
    if data[key] in (None, ""):
        refuse((key,), "names no file: name one, or leave the key out")
    try:
        secret = Path(str(data[key])).read_text().rstrip("\r\n")
    except (OSError, ValueError) as error:  # ValueError: no text, or a NUL in the name
        refuse((key,), f"cannot read the secret: {error}")
    return secret or refuse((key,), f"{data[key]} is empty: a secret must not be")
