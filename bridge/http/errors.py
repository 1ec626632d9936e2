"""Errors of the HTTP API: one shape, `{"error": {"code", "message"}}`, whatever went wrong."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ...adapters.base import AdapterError, BackOff, NotConnected, Rejected
from ...core.ledger import Event
from ...core.reasons import Reason
from ...core.store import StoreClosed, StoreError, StoreFull, Unsupported
from ..views import NotKnownError, NotPossibleError, WouldBeRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from starlette.requests import Request


class ErrorDetail(msgspec.Struct, frozen=True, omit_defaults=True):
    """`code` is stable; `message` is for people. `event` and `at` (epoch ms) tell what happened to a message that is gone."""

    code: str
    message: str
    event: Event | None = None
    at: int | None = None


class Error(msgspec.Struct, frozen=True):
    """What every status of 400 and above bears."""

    error: ErrorDetail


class Problem(Exception):
    """An answer other than success, raised from anywhere below an endpoint."""

    def __init__(self, status: int, error: ErrorDetail, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(error.message)
        self.status = status
        self.error = error
        self.headers = headers

    def response(self) -> Response:
        """The HTTP response that tells it."""
        return Response(msgspec.json.encode(Error(self.error)), self.status, self.headers, "application/json")


def problem(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Problem:
    """A problem with nothing more to tell."""
    return Problem(status, ErrorDetail(code, message), headers)


@contextmanager
def asked_badly() -> Iterator[None]:
    """For what reads a request: a ValueError inside is the client's fault, and says what is wrong."""
    try:
        yield
    except ValueError as error:
        raise problem(400, "bad_request", str(error)) from error


def stopping() -> Problem:
    """Where the bridge ends before it has an answer."""
    return problem(503, "stopping", "The bridge is stopping; whether this was done is not known.")


_HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}
_HTTP_MESSAGES = {404: "There is nothing at this path: /api/v1/openapi.json names all that are."}


def problem_of(error: Exception) -> Problem:  # noqa: C901, PLR0911, PLR0912 - one table from foreign to own errors, in order of precedence
    """Any exception as what the API says of it."""
    match error:
        case Problem():
            return error
        case HTTPException():
            code, message = _HTTP_CODES.get(error.status_code, "bad_request"), _HTTP_MESSAGES.get(error.status_code, error.detail)
            return problem(error.status_code, code, message, error.headers)
        case NotKnownError():
            return problem(404, "unknown", str(error))
        case NotPossibleError():
            return problem(409, "not_possible", str(error))
        case WouldBeRefusedError():
            remedy = next((known.remedy for known in Reason if known == error.reason), "")
            if error.reason == Reason.NO_DESTINATION:
                remedy += " Where producers send elsewhere, and a gate or a name leads here, say where (`--address`, or `address` by HTTP)."
            return problem(
                422,
                error.reason,
                f"Not sent, for it would be dead-lettered: {error}. {remedy} To send it all the same, force it (`--force`, or `force` by HTTP).",
            )
        case Rejected():
            return problem(422, error.reason, error.detail)
        case BackOff():
            return problem(503, error.reason, error.detail)
        case NotConnected() | AdapterError():
            return problem(503, "not_connected", str(error))
        case Unsupported():
            return problem(501, Reason.UNSUPPORTED_IN_LEVEL_QUEUES, str(error))
        case StoreClosed():
            return stopping()
        case StoreFull():
            return problem(503, "store_full", f"The disk is full; nothing was changed: {error}")
        case StoreError():
            return problem(503, "store_failed", str(error))
    return problem(500, "internal", "Internal error; see the bridge's log.")


def render(_request: Request, error: Exception) -> Response:
    """Any exception as an answer (starlette's exception handler)."""
    return problem_of(error).response()


HANDLERS = dict.fromkeys(
    (Problem, HTTPException, NotKnownError, NotPossibleError, WouldBeRefusedError, AdapterError, StoreError, Unsupported, Exception), render
)
