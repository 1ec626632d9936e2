"""Two threads that meet the first answer of a kind at once: kafka-python alone may break its decoder for good, see adapters/kafka/decoders.py."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataResponse
from kafka.protocol.schemas.fields.struct import StructField

import delaybridge.adapters.kafka.link  # noqa: F401 - through it every client is made

VERSION = 12
ANSWER = MetadataResponse(version=VERSION, throttle_time_ms=7, brokers=[], cluster_id="here", controller_id=1, topics=[]).encode()
MEETING = 0.2
"""Seconds for which the first thread waits for the second, which must not come."""


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """No decoder of this answer has been made yet."""
    monkeypatch.setattr(MetadataResponse._struct, "_compiled_encoders", {})


@pytest.mark.usefixtures("forgotten")
def test_two_threads_that_meet_the_first_answer_of_a_kind_can_both_read_it_and_all_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    second_in, first_done, first = threading.Event(), threading.Event(), threading.Lock()
    emit = StructField.emit_decode_from

    def meeting(struct: Any, context: Any, name: str, *args: Any, **kwargs: Any) -> None:
        """In the worst order: the second has begun when the first has not ended, and goes on when it has."""
        if name == "obj":
            if first.acquire(blocking=False):
                second_in.wait(MEETING)
            else:
                second_in.set()
                first_done.wait(MEETING)
        emit(struct, context, name, *args, **kwargs)

    def read() -> str:
        try:
            answer: Any = MetadataResponse.decode(ANSWER, version=VERSION)
        finally:
            first_done.set()
        return str(answer.cluster_id)

    monkeypatch.setattr(StructField, "emit_decode_from", meeting)
    with ThreadPoolExecutor(2) as threads:
        readers = [threads.submit(read) for _ in range(2)]

    assert [each.result() for each in readers] == ["here", "here"]
    assert read() == "here"


def test_the_client_makes_a_decoder_as_we_expect() -> None:
    MetadataResponse.decode(ANSWER, version=VERSION)
    assert ("decode", VERSION, True, True, MetadataResponse) in MetadataResponse._struct._compiled_encoders
