"""A batch that rots on the broker's disk, from there to the dead letter."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest
from brokers.kafka import Native

from contract.kafka_user import User, bodies, private, receive
from delaybridge.adapters.base import NotConnected

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def broker() -> Iterator[Native]:
    with private() as broker:
        yield broker


def rot(broker: Native, word: bytes) -> None:
    """Change a byte of a record on the disk. After an orderly end the broker does not look at it again."""
    broker._end(signal.SIGTERM)
    (segment,) = (file for file in broker.directory.rglob("*.log") if word in file.read_bytes())
    segment.write_bytes(segment.read_bytes().replace(word, word.swapcase()))
    broker.start()


@pytest.mark.parametrize("apart", [False, True], ids=["", "in a process of its own"])
def test_a_batch_that_rots_on_the_disk_is_dead_lettered_and_intake_goes_on(broker: Native, apart: bool) -> None:
    """Which batch it was is known from one connection to the next, as the bridge closes and connects."""
    user = User(broker.url)
    try:
        user.send(b"before")
        user.send(b"rotten")
        user.send(b"after")
        rot(broker, b"rotten")
        source: Any = user.apart() if apart else user.source()
        with pytest.raises(NotConnected, match=f"{user.topic}-0 at offset 1 cannot be read, and is fetched again"):
            receive(source, 3, ack=False)
        source.close()
        source.connect()
        before, rotten, after = receive(source, 3)
        assert [before.defect, after.defect, *bodies([before, after])] == [None, None, "before", "after"]
        assert rotten.defect is not None
        assert rotten.defect.reason == "header_damaged"
        assert b"ROTTEN" in (rotten.message.body or b""), "the raw batch is there for whoever wants to mend it"
        user.send(b"later")
        assert bodies(receive(source, 1)) == ["later"]
        source.close()
        assert user.committed() == {0: 4}
    finally:
        user.close()
