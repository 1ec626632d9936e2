"""A sink that sends as an instrumented producer does: on Kafka nothing but the producer can divert what carries a delay header."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ....core import fields
from ...instrument.headers import delayed
from ...texts import text_of
from .sink import KafkaSink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...base import Outgoing
    from ..options import Endpoint, Kafka


class ProducerSink(KafkaSink):
    """What carries a delay header, and is sent to a topic that `route` does not read, goes to `<topic><delayed_suffix>` (docs/interception.md)."""

    def __init__(self, options: Kafka, route: Endpoint) -> None:
        super().__init__(options)
        self._suffix = options.delayed_suffix
        self._route = route

    def publish(self, messages: Sequence[Outgoing]) -> None:
        """See base.Sink."""
        super().publish([self._diverted(each) for each in messages])

    def _diverted(self, outgoing: Outgoing) -> Outgoing:
        written = [(field.name, text_of(field)) for field in fields.fields(outgoing.message.headers)]
        if self._taken_in(outgoing.address) or not delayed(written):
            return outgoing
        return replace(outgoing, address=outgoing.address + self._suffix)

    def _taken_in(self, topic: str) -> bool:
        route = self._route
        return topic == route.address or topic in route.topics or topic.endswith(self._suffix) or route.matches(topic)
