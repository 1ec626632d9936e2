"""What a broker tells of itself: how many messages lie in a queue, and on Artemis whatever its management knows.

ActiveMQ Classic counts with its statistics plug-in. A question is a message to `ActiveMQ.Statistics.Destination.<queue>`. The plug-in answers to `reply-to`
before ActiveMQ looks at the next frame, with a map, which a STOMP client gets as JSON; so what has not come when a message of our own comes back will not
come. A broker without the plug-in keeps the question in a queue of that name: it expires at once.

Artemis is asked at its management address, in the same way, and answers with JSON.
"""

from __future__ import annotations

import json
import secrets
import threading
from typing import TYPE_CHECKING, Any, Self

from ..base import AdapterError, NotConnected
from ..clock import wall_clock
from .frames import ERROR, MESSAGE
from .link import Link

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .frames import Frame
    from .transport import Target, Times

PLUGIN = "<plugins><statisticsBrokerPlugin/></plugins>"
"""What stands in the element <broker> of activemq.xml."""

_QUESTION = "/queue/ActiveMQ.Statistics."
_MANAGEMENT = "activemq.management"
_UNTOLD = f"Artemis does not tell this user: give it the permissions `manage` and `send` for the address `{_MANAGEMENT}`"
_OWN = b"delaybridge-question"


class Unanswered(AdapterError):
    """The broker has no statistics for us. The text says what to do."""


class Statistics:
    """One connection that asks. Raises NotConnected on entering; not for several threads."""

    def __init__(self, targets: Sequence[Target], times: Times) -> None:
        self._link = Link(targets, self, times, "activemq statistics")
        self._patience = times.connect
        self._answers = f"/temp-queue/{secrets.token_hex(4)}"
        self._arrived: list[Frame] = []
        self._lost: NotConnected | None = None
        self._changed = threading.Condition()

    def __enter__(self) -> Self:
        self._link.start()
        try:
            self._ask(
                b"SUBSCRIBE",
                (b"id", self._link.mark.encode()),
                (b"destination", self._answers.encode()),
                (b"ack", b"auto"),
                (b"transformation", b"jms-map-json"),
            )
        except AdapterError:
            self._link.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._link.close()

    @property
    def artemis(self) -> bool:
        """Whether this broker is one."""
        return self._link.artemis

    def depths(self, queues: Sequence[str]) -> list[int]:
        """How many messages lie in each, those included that consumers have not acknowledged; 0 where there is no such queue.

        Raises NotConnected, and Unanswered where the broker has no statistics plug-in or does not let us ask it.
        """
        if self.artemis:
            return [self._count(queue) for queue in queues]
        if not self._answered("Broker"):
            raise Unanswered(f"ActiveMQ counts for nobody without its statistics plug-in: put {PLUGIN} into activemq.xml, and restart it")
        return [self._depth(queue) for queue in queues]

    def _depth(self, queue: str) -> int:
        answers = self._answered(f"Destination.{queue}")
        return sum(_number(answer, "size") for answer in answers)

    def _answered(self, about: str) -> list[dict[str, Any]]:
        """The answers of the plug-in to one question; none where nothing was answered."""
        return [_map(each) for each in self._asked(_QUESTION + about)]

    def _count(self, queue: str) -> int:
        succeeded, count = self._managed(f"queue.{queue}", (b"_AMQ_Attribute", b"messageCount"))
        return int(count) if succeeded else 0

    def managed(self, resource: str, operation: bytes, *parameters: str) -> Any:
        """What an operation of Artemis' management returns. Raises NotConnected, and Unanswered where it fails or this user may not ask."""
        succeeded, answer = self._managed(resource, (b"_AMQ_OperationName", operation), body=json.dumps(parameters).encode())
        if not succeeded:
            raise Unanswered(f"Artemis: {answer}")
        return answer

    def _managed(self, resource: str, what: tuple[bytes, bytes], body: bytes = b"") -> tuple[bool, Any]:
        """Whether that succeeded, and the value, or what failed. Artemis knows no such resource where there is no such queue."""
        answers = self._asked(_MANAGEMENT, (b"_AMQ_ResourceName", resource.encode()), what, body=body)
        try:
            (answer,) = answers
            (value,) = json.loads(answer.body)
        except (ValueError, TypeError) as error:
            raise Unanswered(_UNTOLD) from error
        return answer.headers.get(b"_AMQ_OperationSucceeded") == b"true", value

    def _asked(self, whom: str, *question: tuple[bytes, bytes], body: bytes = b"") -> list[Frame]:
        """The answers to one question; none where nothing was answered."""
        mark = secrets.token_hex(4).encode()
        expires = b"%d" % (wall_clock() + 5_000)
        own = (b"persistent", b"false"), (b"expires", expires)
        self._ask(b"SEND", (b"destination", whom.encode()), (b"reply-to", self._answers.encode()), *own, *question, body=body)
        last = (b"priority", b"0")  # as what Artemis answers has: it hands out more important messages first
        self._ask(b"SEND", (b"destination", self._answers.encode()), (_OWN, mark), (b"persistent", b"false"), last)
        with self._changed:
            self._changed.wait_for(lambda: self._lost or any(each.headers.get(_OWN) == mark for each in self._arrived), self._patience)
            if self._lost is not None:
                raise self._lost
            arrived, self._arrived = self._arrived, []
        return [each for each in arrived if _OWN not in each.headers]

    def _ask(self, command: bytes, *headers: tuple[bytes, bytes], body: bytes = b"") -> None:
        answer = self._link.ask(command, *headers, body=body)
        if answer.command == ERROR:
            raise Unanswered(f"ActiveMQ refused: {answer.text(b'message')}")

    def heard(self, frames: list[Frame]) -> None:
        """See link.Session."""
        with self._changed:
            self._arrived += [each for each in frames if each.command == MESSAGE]
            self._changed.notify()

    def lost(self, reason: NotConnected) -> None:
        """See link.Session."""
        with self._changed:
            self._lost = reason
            self._changed.notify()


def _map(answer: Frame) -> dict[str, Any]:
    """ActiveMQ's JSON of a map: an entry is its name and its value, each under the name of its Java type. Raises Unanswered."""
    try:
        entries = json.loads(answer.body)["map"]["entry"]
        return dict(_pair(entry) for entry in (entries if isinstance(entries, list) else [entries]))
    except (ValueError, KeyError, TypeError) as error:
        raise Unanswered("ActiveMQ cannot write its statistics as JSON: xstream and jettison are missing in its lib/optional") from error


def _pair(entry: dict[str, Any]) -> tuple[str, Any]:
    name = entry["string"]
    if isinstance(name, list):
        return name[0], name[1]
    return name, next((value for kind, value in entry.items() if kind != "string"), None)


def _number(answer: dict[str, Any], name: str) -> int:
    value = answer.get(name, 0)
    if not isinstance(value, int):
        raise Unanswered(f"ActiveMQ's statistics say {value!r:.100} for {name}")
    return value
