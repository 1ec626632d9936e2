"""Who gets copies of what the bridge publishes on RabbitMQ."""

from __future__ import annotations

import pytest

from delaybridge.adapters.rabbitmq.copies import uncopied
from delaybridge.core.fields import plain, table

HEADERS = table([("tenant", "a"), ("CC", "us"), ("ACCOUNT", "CC"), ("BCC", "boss"), ("last", 1)])


def test_a_producers_copies_do_nothing_where_it_did_not_publish() -> None:
    found = plain(uncopied(HEADERS, count=False))
    assert found == {"tenant": "a", "x-original-cc": "us", "ACCOUNT": "CC", "x-original-bcc": "boss", "last": 1}


def test_behind_a_gate_a_producers_copies_are_sent_as_it_said() -> None:
    headers = table([("tenant", "a")]) + b"\2CCA\0\0\0\x07S\0\0\0\2us\3BCCA\0\0\0\0" + table([("last", 1)])
    assert uncopied(headers, count=True) == headers


@pytest.mark.parametrize("said", ["us", b"us", None])
def test_what_names_no_copies_but_is_called_so_does_nothing_behind_a_gate_either(said: str | bytes | None) -> None:
    """RabbitMQ takes nothing but arrays there, and a header of another broker is none."""
    assert plain(uncopied(table([("CC", said), ("BCC", said)]), count=True)) == {"x-original-cc": said, "x-original-bcc": said}


def test_headers_without_copies_are_left_alone() -> None:
    headers = table([("tenant", "CC")])
    assert uncopied(headers, count=False) == headers
