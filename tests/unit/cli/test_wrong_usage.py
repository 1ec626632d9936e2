"""Values on the command line that are none: a sentence tells what was given and what is allowed."""

from __future__ import annotations

import pytest
from fake_daemon import call

pytestmark = pytest.mark.usefixtures("alone")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("dead-letter retry x", "'NUMBER': 'x' must be a whole number"),
        ("dead-letter drop 1 1.5", "'NUMBER': '1.5' must be a whole number"),
        ("dead-letter drop 0", "'NUMBER': '0' must be at least 1"),
        ("explain x-delay=5 --count 5000", "'--count': '5000' must be at most 1000"),
        ("top --interval often", "'--interval': 'often' must be a number"),
        ("list --output xml", "'--output' / '-o': 'xml' is not one of 'table', 'json', 'ndjson'"),
        ("migrate-store --to memory", "'--to': 'memory' is not one of 'level_queues', 'time_index'"),
    ],
)
def test_a_value_that_cannot_be_is_told_in_a_plain_sentence(command: str, told: str) -> None:
    answer = call(*command.split())

    assert answer.exit_code == 2
    assert answer.stderr.splitlines()[-1] == f"Error: Invalid value for {told}"
