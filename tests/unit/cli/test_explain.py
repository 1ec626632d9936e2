import re
import shlex
from pathlib import Path

import pytest

from delaybridge.core import fields
from delaybridge.core.explain import Delivery, Explanation, explain
from delaybridge.core.schedule import Limits

NOW = 1_798_794_000_000
LIMITS = Limits()
PAGE = (Path(__file__).parents[3] / "docs" / "headers.md").read_text()
EXAMPLES = re.findall(r"^delaybridge explain (.+?)  # (\w+)(?:: (\w+))?$", PAGE, re.MULTILINE)


def test_a_delay_shows_its_delivery_and_what_is_left() -> None:
    headers: dict[str, fields.Value] = {"x-delay": 5000, "a": "b", "x-delay-id": "i", "x-delay-to": "q"}
    assert explain(headers, NOW, LIMITS) == Explanation(
        verdict="delayed", dialect="rabbitmq", id="i", to="q", deliveries=(Delivery(1, NOW + 5000),), headers={"a": "b", "x-delay": -5000}
    )


def test_of_many_deliveries_the_first_few_are_shown() -> None:
    explanation = explain(
        {"x-delay-period": 1000, "x-delay-repeat": 5, "x-delay-ends": NOW + 9000, "x-delay-misfire": "skip"}, NOW, LIMITS, 3
    )
    assert explanation.deliveries == tuple(Delivery(n, NOW + n * 1000) for n in (1, 2, 3))
    assert (explanation.more, explanation.ends, explanation.misfire) == (True, NOW + 9000, "skip")


def test_a_series_that_ends_with_the_last_one_shown_has_no_more() -> None:
    assert not explain({"x-delay-period": 1000, "x-delay-repeat": 2}, NOW, LIMITS, 3).more


def test_no_delay_a_cancellation_and_a_refusal_are_told_apart() -> None:
    assert explain({"a": 1}, NOW, LIMITS) == Explanation(verdict="pass_through", headers={"a": 1})
    assert explain({"x-delay-cancel": "i"}, NOW, LIMITS) == Explanation(verdict="cancel", id="i")
    refusal = explain({"x-delay": "soon"}, NOW, LIMITS)
    assert (refusal.verdict, refusal.reason, refusal.dialect, refusal.headers) == (
        "refused",
        "bad_duration",
        "delaybridge",
        {"x-delay": "soon"},
    )
    assert "soon" in refusal.detail


def test_a_table_may_be_given_as_it_was_on_the_wire() -> None:
    assert explain(fields.entry("DelaySeconds", 5), NOW, LIMITS).deliveries == (Delivery(1, NOW + 5000),)
    assert explain(b"\x07x", NOW, LIMITS).reason == "header_damaged"


@pytest.mark.parametrize(("words", "verdict", "reason"), EXAMPLES)
def test_each_example_of_the_page_is_true(words: str, verdict: str, reason: str) -> None:
    headers = dict(word.split("=", 1) for word in shlex.split(words))
    explanation = explain(headers, NOW, LIMITS)
    assert (explanation.verdict, explanation.reason) == (verdict, reason)


def test_the_page_has_examples_of_every_verdict() -> None:
    assert {verdict for _, verdict, _ in EXAMPLES} == {"delayed", "pass_through", "cancel", "refused"}
