"""What the options of several brokers have in common."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, SecretStr

from ..core.durations import parse_duration

if TYPE_CHECKING:
    from collections.abc import Container, Sequence


def _seconds(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return float(value)  # from the environment everything is text
    except ValueError:
        return parse_duration(value) / 1000


Seconds = Annotated[float, BeforeValidator(_seconds), Field(le=86_400)]
"""A number of seconds, or a duration as text: `10`, `10s`, `PT1M`. At most a day: no thread can wait for an infinity."""


def _whole(value: object) -> object:
    seconds = _seconds(value)
    if isinstance(seconds, float) and not seconds.is_integer():
        raise ValueError("must be whole seconds, such as 30 or 30s")
    return seconds


WholeSeconds = Annotated[int, BeforeValidator(_whole)]
"""The same, without a fraction."""


def _there(path: Path) -> Path:
    try:
        there = path.is_file()
    except OSError:  # a directory that we may not enter, a name that is too long
        there = False
    if not there:
        raise ValueError("there is no such file, or this user may not see it")
    return path


File = Annotated[Path, AfterValidator(_there)]
"""A file that is there. Pydantic's own type lets errors of the file system out, past the lines that name a key."""


def scheme_of(url: str) -> str:
    """What stands before `://`, in lower case: a scheme may be written in any. Empty where nothing does."""
    scheme, colon, _ = url.partition("://")
    return scheme.lower() if colon else ""


def parts_of(url: str, schemes: Container[str]) -> SplitResult:
    """A URL's parts; its port can be read. Raises ValueError, whose text shows nothing of the URL: a password may stand in it."""
    try:
        parts = urlsplit(url)
        if parts.scheme in schemes and parts.hostname and parts.port != 0:
            return parts
    except ValueError:
        pass  # its text shows what it could not read
    raise ValueError(
        "cannot be read: it is scheme://user:password@host:port, the password percent-encoded, or given as `username` and `password_file`,"
        " and a port from 1 to 65535"
    )


def texts_of(url: SecretStr | list[SecretStr]) -> list[str]:
    """The URLs of a broker, or of its nodes, with what is secret in them."""
    return [one.get_secret_value() for one in (url if isinstance(url, list) else [url])]


class Login(Protocol):
    """The options by which a password is given."""

    password: SecretStr | None
    password_file: Path | None


def check_password(options: Login) -> None:
    """Raises ValueError where it is given twice."""
    if options.password is not None and options.password_file is not None:
        raise ValueError("give either `password` or `password_file`")


def password_of(options: Login) -> str | None:
    """The password, read anew where it stands in a file; None where none is given. Raises OSError, also where the file is empty, and UnicodeError."""
    if options.password is not None:
        return options.password.get_secret_value()
    if options.password_file is None:
        return None
    if not (password := options.password_file.read_text().strip()):
        raise OSError(errno.ENODATA, "there is no password in it yet", str(options.password_file))  # a secret that is still to be mounted
    return password


def check_tls(options: BaseModel, urls: Sequence[str], schemes: Sequence[str]) -> None:
    """Raises ValueError where `tls` is set and no URL has one of these schemes, which use it."""
    if "tls" in options.model_fields_set and not any(scheme_of(url) in schemes for url in urls):
        begin = " or ".join(f"{scheme}://" for scheme in schemes)
        raise ValueError(f"`tls` is for URLs that begin with {begin}, and there is none: nothing would be encrypted")
