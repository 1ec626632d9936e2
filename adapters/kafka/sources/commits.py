"""Commits that are waited for, and what the log says of those that fail: the first of a run of failures, and the end of the run."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import structlog
from kafka import errors

from ..link import not_connected
from .progress import MOST

log = structlog.get_logger()

REBALANCING = (errors.RebalanceInProgressError, errors.CommitFailedError)
"""What Kafka answers while partitions go from one bridge to another. It passes."""

_PASSES = (
    *REBALANCING, errors.KafkaConnectionError,
    errors.NotCoordinatorError, errors.CoordinatorNotAvailableError, errors.CoordinatorLoadInProgressError,
)  # fmt: skip
"""So does the end of a connection, and what is answered while another broker becomes the coordinator: as when one restarts, or a login has expired."""

_PASSING = 30.0
"""Seconds after which such a failure is logged all the same."""


async def settled(future: Any) -> bool:
    """Wait for this commit, if it is one. Where it failed, the next owner gets these records again."""
    with contextlib.suppress(Exception):
        if future is not None:
            await future
        return True
    return False


class Commits:
    """Those of one consumer group. One thread at a time."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self._since: float | None = None
        self._told = False

    def failed(self, error: BaseException) -> None:
        """One was not made; it will be tried again."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if not self._told and (not isinstance(error, _PASSES) or now - self._since > _PASSING):
            self._told = True
            log.warning(
                "commit_failed",
                group=self._group,
                error=str(not_connected(error)),
                action=f"tried again; a source takes no more than {MOST} messages until it succeeds",
            )

    def made(self) -> None:
        """A commit has succeeded: forget the failures before it."""
        if self._told:
            log.info("commits_again", group=self._group)
        self._since, self._told = None, False
