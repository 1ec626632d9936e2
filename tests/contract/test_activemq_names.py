"""What a JMS producer may call its properties, and ActiveMQ shows to a STOMP client as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokers.activemq import Broker, jms
from brokers.common import Unavailable
from conftest import unavailable

from contract.activemq_stage import Stage
from contract.taking import taken
from delaybridge.adapters.base import Rejected

if TYPE_CHECKING:
    from delaybridge.adapters.base import Received

ODD = ["a\n\nb:c", "x:1\n\ny", "one\nline", "a\n\n\nb", "\n\n", "content-length:3\n\nabc", "k1\n\nk"]


def reason(one: Received) -> str | None:
    return one.defect.reason if isinstance(one.defect, Rejected) else None


def test_names_with_an_end_of_line_are_refused_and_spoil_no_other_message(activemq: Broker) -> None:
    stage = Stage(activemq)
    try:
        jms(activemq, "name", stage.queue, "plain", *ODD, "plain")
    except Unavailable as why:
        unavailable("activemq", why)
    source = stage.source()
    source.connect()

    first, *odd, last = taken(source, lambda found: len(found) >= 2 + len(ODD))
    stage.close()

    assert [one.message.body for one in odd] == [b"abc"] * 6 + [b"k:value\n\nabc"], "ActiveMQ has k1 behind all other headers"
    assert {reason(one) for one in odd} == {"header_damaged"}
    assert [(one.message.body, reason(one)) for one in (first, last)] == [(b"abc", None)] * 2
