"""How long to wait before trying again: exponential, with full jitter, capped."""

from __future__ import annotations

from tenacity import RetryCallState, Retrying, wait_random_exponential


class Backoff:
    """Waits in seconds for attempt 1, 2, …: a random share of `first * 2 ** (attempt - 1)`, at most `cap`."""

    def __init__(self, first: float, cap: float) -> None:
        self._wait = wait_random_exponential(multiplier=first, max=cap)
        self._state = RetryCallState(Retrying(), None, (), {})

    def seconds(self, attempt: int) -> float:
        """The wait after the given number of failed attempts."""
        self._state.attempt_number = attempt
        return self._wait(self._state)
