"""Every endpoint of the API: one table, `ENDPOINTS`, from which the routes and the OpenAPI document are made.

A handler takes the daemon (`Api`), what was asked (its query or its JSON body, validated) and the parameters of the path. Handlers run in
starlette's thread pool, so they may block for as long as the control does: a few seconds at most. The first line of a handler's docstring
is what the OpenAPI document says of it.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import msgspec
from starlette.responses import Response

from ...adapters.base import AdapterError
from ...core.store import Pending, Query, StoreError, Unsupported
from ..text import instant
from ..views import Status
from . import shapes
from .convert import MESSAGE_LIMIT, dead_letter_view, epoch_ms, message_detail, message_of, message_view
from .errors import ErrorDetail, Problem, asked_badly, problem, problem_of
from .streams import ARROW, NDJSON, Pumped, Streams, backlog, deliveries

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...adapters.clock import Clock
    from ...core.store import Answer
    from ..metrics import Metrics
    from ..views import ControlPort

JSON = "application/json"
SMALL = 64 << 10
"""Bytes of a request body, at most, where it is no message."""
_STATUS = {"too_late": 409, "in_flight": 409, "unknown": 404}
_NEXT = 5
_AT_ONCE = 20
"""Cancellations of one request that are under way at once: they share the store's fsyncs, and those that wait for what is in flight wait together."""
_DONE = shapes.Done()


@dataclass(frozen=True, slots=True)
class Api:
    """What handlers work with."""

    control: ControlPort
    metrics: Metrics
    clock: Clock
    streams: Streams


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One row of the table.

    asks        the query of a GET, the JSON body of anything else
    answers     the shape of a successful answer; of one line of it where `media` is ndjson; None where it is no JSON
    errors      the statuses that it may answer with beside those of every endpoint (400, 401, 403, 500, 503), or of every one with a body (408, 413)
    probe       no token is needed without a query, and 503 bears the same shape as 200
    reserved    it has threads of its own, and is answered while all others wait for a broker or for what is in flight; as each probe has
    """

    method: Literal["GET", "POST", "DELETE"]
    path: str
    handler: Callable[..., msgspec.Struct | Response]
    asks: type[msgspec.Struct] | None = None
    answers: type[msgspec.Struct] | None = None
    status: int = 200
    errors: tuple[int, ...] = ()
    media: str = JSON
    probe: bool = False
    reserved: bool = False
    body_limit: int = SMALL


def livez(api: Api) -> Response:
    """Whether the process works: it answers, and all its threads run. Never tells of brokers or of the disk: a restart would mend neither."""
    alive = api.control.alive()
    return _json(shapes.Alive(alive), 200 if alive else 503)


def readyz(api: Api, asked: shapes.ReadyQuery) -> Response:
    """Whether messages flow: brokers connected, store open, room on the disk."""
    checks = api.control.checks()
    ready = all(check.ok for check in checks)
    return _json(shapes.Ready(ready, None if asked.verbose is None else list(checks)), 200 if ready else 503)


def metrics(api: Api) -> Response:
    """Metrics in Prometheus' text format."""
    body, content_type = api.metrics.expose()
    return Response(body, media_type=content_type)


def status(api: Api) -> Status:
    """The whole daemon at one glance."""
    return api.control.status()


def list_messages(api: Api, asked: shapes.MessagesQuery) -> shapes.MessagePage:
    """Pending messages in order of due time, or of id where an id prefix is given."""
    now = api.clock()
    with asked_badly():
        query = Query(
            lane=asked.broker,
            address=asked.address,
            id_prefix=asked.id_prefix,
            due_from=None if asked.due_from is None else epoch_ms(asked.due_from, now),
            due_to=None if asked.due_to is None else epoch_ms(asked.due_to, now),
        )
        page = api.control.messages(query, asked.limit, asked.cursor)
    return shapes.MessagePage([message_view(pending) for pending in page.items], page.cursor)


def show_message(api: Api, id: str) -> shapes.MessageDetail:  # noqa: A002 - the field's own word
    """One pending message with its headers and its next due times, or what became of it."""
    found = api.control.find(id)
    if isinstance(found, Pending):
        return message_detail(found, api.control.next_dues(found.record, _NEXT), api.control.waits_for(found.record))
    raise _refusal(found, 404, "Not pending any more")


def send_message(api: Api, asked: shapes.SendRequest) -> shapes.Done:
    """Publish a message to a route's source, as a producer would; the broker has confirmed it when this answers."""
    with asked_badly():
        message = message_of(asked)
    api.control.send(asked.route, message, asked.address, force=asked.force)
    return _DONE


def cancel_message(api: Api, id: str) -> shapes.Done:  # noqa: A002 - the field's own word
    """Withdraw a pending message."""
    return _done(api.control.cancel(id))


def cancel_messages(api: Api, asked: shapes.CancelRequest) -> shapes.CancelAnswers:
    """Withdraw up to a hundred pending messages, each with an answer of its own, in the order of their ids."""
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="cancel") as threads:
        return shapes.CancelAnswers(list(threads.map(partial(_cancelled, api.control), asked.ids)))


def reschedule_message(api: Api, asked: shapes.RescheduleRequest, id: str) -> shapes.Moved:  # noqa: A002 - the field's own word
    """Move a pending message to another instant; its recurrence goes on as before after it."""
    with asked_badly():
        due = epoch_ms(asked.due, api.clock())
    return _moved(api, id, api.control.reschedule(id, due))


def release_message(api: Api, id: str) -> shapes.Moved:  # noqa: A002 - the field's own word
    """Deliver a pending message now."""
    return _moved(api, id, api.control.release(id))


def list_dead_letters(api: Api, asked: shapes.DeadLettersQuery) -> shapes.DeadLetterPage:
    """Messages that could not be delivered, oldest first."""
    return shapes.DeadLetterPage([dead_letter_view(letter) for letter in api.control.dead_letters(asked.limit, asked.after)])


def retry_dead_letter(api: Api, number: int) -> shapes.Done:
    """Schedule a dead letter again: due now, or as its headers say if it was refused on arrival."""
    return _known(api.control.retry_dead_letter(number), f"no dead letter has the number {number}")


def drop_dead_letter(api: Api, number: int) -> shapes.Done:
    """Forget a dead letter; its ledger row stays."""
    return _known(api.control.drop_dead_letter(number), f"no dead letter has the number {number}")


def pause_route(api: Api, name: str) -> shapes.Done:
    """Publish none of a route's messages until it is resumed; they are still taken in."""
    return _known(api.control.pause(name), f"no route is called {name!r}")


def resume_route(api: Api, name: str) -> shapes.Done:
    """Publish a paused route's messages again, what waited first."""
    return _known(api.control.resume(name), f"no route is called {name!r}")


def observe(api: Api, asked: shapes.Destination) -> Response:
    """Copies of what arrives at a destination from now on, one JSON object a line.

    It ends when the client goes away or the daemon stops.
    """
    return Pumped(partial(deliveries, api.control, asked, api.clock, take=False), NDJSON, api.streams, endless=True)


def take(api: Api, asked: shapes.Destination) -> Response:
    """What arrives at a destination from now on; from a queue of RabbitMQ or ActiveMQ it is taken away for good, before its consumers.

    It ends as `observe` does.
    """
    return Pumped(partial(deliveries, api.control, asked, api.clock, take=True), NDJSON, api.streams, endless=True)


def export(api: Api) -> Response:
    """Every pending message as a row of an Arrow IPC stream: where it goes, when it is due, how it recurs; and which bridge told that, and when."""
    return Pumped(partial(backlog, api.control), ARROW, api.streams, endless=False)


def _cancelled(control: ControlPort, id_: str) -> shapes.CancelAnswer:
    """One id of several. What is wrong with it alone keeps nothing from the others."""
    try:
        answer = control.cancel(id_)
    except (AdapterError, StoreError, Unsupported) as failure:
        error = problem_of(failure).error
        return shapes.CancelAnswer(id_, "refused", code=error.code, message=error.message)
    return shapes.CancelAnswer(id_, answer.outcome, answer.event, answer.at)


def _json(value: msgspec.Struct, status: int) -> Response:
    return Response(msgspec.json.encode(value), status, media_type=JSON)


def _known(known: bool, message: str) -> shapes.Done:
    if not known:
        raise problem(404, "unknown", message)
    return _DONE


def _done(answer: Answer) -> shapes.Done:
    if answer.outcome != "done":
        raise _refusal(answer, _STATUS[answer.outcome], "It is too late")
    return shapes.Done("done", answer.event, answer.at)


def _moved(api: Api, id_: str, answer: Answer) -> shapes.Moved:
    done, found = _done(answer), api.control.find(id_)
    waits_for = api.control.waits_for(found.record) if isinstance(found, Pending) else ""
    return shapes.Moved(done.outcome, done.event, done.at, waits_for)


def _refusal(answer: Answer, status: int, too_late: str) -> Problem:
    """Why a message cannot be had, as an error."""
    words = {
        "too_late": f"{too_late}: {answer.event} at {instant(answer.at)}."
        if answer.event
        else f"{too_late}; what happened is no longer remembered.",
        "in_flight": "It is being published right now; ask again.",
        "unknown": "No message with this id is known.",
    }
    detail = ErrorDetail(answer.outcome, words[answer.outcome], answer.event, answer.at)
    return Problem(status, detail, {"Retry-After": "1"} if answer.outcome == "in_flight" else None)


_M = "/api/v1/messages"
_ID = _M + "/{id:path}"
_LETTERS = "/api/v1/dead-letters"
ENDPOINTS = (
    Endpoint(method="GET", path="/livez", handler=livez, answers=shapes.Alive, probe=True),
    Endpoint(method="GET", path="/healthz", handler=livez, answers=shapes.Alive, probe=True),
    Endpoint(method="GET", path="/readyz", handler=readyz, asks=shapes.ReadyQuery, answers=shapes.Ready, probe=True),
    Endpoint(method="GET", path="/metrics", handler=metrics, media="text/plain", reserved=True),
    Endpoint(method="GET", path="/api/v1/status", handler=status, answers=Status, reserved=True),
    Endpoint(method="GET", path=_M, handler=list_messages, asks=shapes.MessagesQuery, answers=shapes.MessagePage, errors=(404, 501)),
    Endpoint(
        method="POST", path=_M, handler=send_message, asks=shapes.SendRequest, answers=shapes.Done, status=202,
        errors=(404, 409, 422), body_limit=MESSAGE_LIMIT * 4 // 3 + SMALL,
    ),
    Endpoint(method="GET", path=_ID, handler=show_message, answers=shapes.MessageDetail, errors=(404, 501)),
    Endpoint(method="POST", path=f"{_ID}/cancel", handler=cancel_message, answers=shapes.Done, errors=(404, 409, 501)),
    Endpoint(
        method="POST", path="/api/v1/cancellations", handler=cancel_messages, asks=shapes.CancelRequest, answers=shapes.CancelAnswers,
        body_limit=16 * SMALL,
    ),
    Endpoint(
        method="POST", path=f"{_ID}/reschedule", handler=reschedule_message, asks=shapes.RescheduleRequest, answers=shapes.Moved,
        errors=(404, 409, 501),
    ),
    Endpoint(method="POST", path=f"{_ID}/release", handler=release_message, answers=shapes.Moved, errors=(404, 409, 501)),
    Endpoint(method="GET", path=_LETTERS, handler=list_dead_letters, asks=shapes.DeadLettersQuery, answers=shapes.DeadLetterPage, errors=(501,)),
    Endpoint(method="POST", path=f"{_LETTERS}/{{number:number}}/retry", handler=retry_dead_letter, answers=shapes.Done, errors=(404, 409, 501)),
    Endpoint(method="DELETE", path=f"{_LETTERS}/{{number:number}}", handler=drop_dead_letter, answers=shapes.Done, errors=(404, 501)),
    Endpoint(method="POST", path="/api/v1/routes/{name:path}/pause", handler=pause_route, answers=shapes.Done, errors=(404,)),
    Endpoint(method="POST", path="/api/v1/routes/{name:path}/resume", handler=resume_route, answers=shapes.Done, errors=(404,)),
    Endpoint(
        method="GET", path="/api/v1/observe", handler=observe, asks=shapes.Destination, answers=shapes.Delivery, errors=(404, 409, 422, 429), media=NDJSON,
    ),
    Endpoint(
        method="POST", path="/api/v1/observe", handler=take, asks=shapes.Destination, answers=shapes.Delivery, errors=(404, 409, 422, 429), media=NDJSON,
    ),
    Endpoint(method="GET", path="/api/v1/export", handler=export, errors=(429, 501), media=ARROW),
)  # fmt: skip
