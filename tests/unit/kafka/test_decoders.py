"""Two threads that meet the first answer of a kind at once: kafka-python alone may be unable to read it for good, see adapters/kafka/decoders.py."""

from __future__ import annotations

import gc
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from kafka.protocol.api_header import RequestHeader, ResponseClassRegistry
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.schemas.fields.struct import StructField

import delaybridge.adapters.kafka.link  # noqa: F401 - through it every client is made

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@pytest.fixture
def hurried() -> Iterator[None]:
    """Threads take turns as often as they can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("hurried")
def test_threads_that_meet_a_version_of_an_answer_at_once_leave_a_class_for_all_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    header = RequestHeader(request_api_key=MetadataRequest.API_KEY, request_api_version=VERSION, correlation_id=1, client_id="")
    classes = ResponseClassRegistry._response_class_registry
    monkeypatch.setitem(
        classes, MetadataRequest.API_KEY, classes[MetadataRequest.API_KEY]
    )  # it holds the last class that was made, weakly: put back
    made = []
    for _ in range(200):
        monkeypatch.setattr(MetadataResponse, "_VERSIONS", {})
        together = threading.Barrier(4)

        def look_up(together: threading.Barrier = together) -> Any:
            together.wait()
            return MetadataResponse[VERSION]

        with ThreadPoolExecutor(4) as threads:
            made.append({each.result() for each in [threads.submit(look_up) for _ in range(4)]})
    gc.collect()

    assert [len(each) for each in made] == [1] * len(made)
    assert header.get_response_class() is MetadataResponse._VERSIONS[VERSION]


def test_the_client_makes_a_decoder_as_we_expect() -> None:
    MetadataResponse.decode(ANSWER, version=VERSION)
    assert ("decode", VERSION, True, True, MetadataResponse) in MetadataResponse._struct._compiled_encoders
