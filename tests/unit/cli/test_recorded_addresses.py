"""Under which address `observe --to` writes what arrives: the one that the bridge's ledger has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from fake_daemon import call

from delaybridge.bridge.cli import observe
from delaybridge.bridge.ledger.observed import Look

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("alone")

T0 = 1_795_507_200_000
BROKERS = """
brokers:
  rabbit: {type: rabbitmq, url: "amqp://127.0.0.1:1"}
  other: {type: rabbitmq, url: "amqp://127.0.0.1:1"}
  amq: {type: activemq, url: "stomp://127.0.0.1:1"}
  kafka: {type: kafka, bootstrap_servers: "127.0.0.1:1"}
routes:
  - {name: gate, from: {broker: rabbit, queue: in, gate: [orders]}, to: {broker: rabbit}, dead_letter: /exchanges/dead}
  - {name: one, from: {broker: rabbit, queue: in2, gate: [one]}, to: {broker: rabbit, address: plain}}
  - {name: topics, from: {broker: amq, queue: in, gate: [/topic/events.*, invoices]}, to: {broker: amq}}
  - {name: bills, from: {broker: amq, queue: in2}, to: {broker: amq, address: bills}}
"""


@pytest.fixture
def arrival(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One message arrives at whatever is observed."""
    (tmp_path / "delaybridge.yaml").write_text(BROKERS)

    def directly(_: object, __: str, address: str, *___: object) -> list[Look]:
        return [Look(T0, T0, [{"at": T0, "address": address, "body": "", "headers": {}}], full=False)]

    monkeypatch.setattr(observe, "_directly", directly)


@pytest.mark.usefixtures("arrival")
@pytest.mark.parametrize(
    ("broker", "address", "recorded"),
    [
        ("rabbit", "/exchanges/orders.real/eu:new", "/exchanges/orders.real/eu%3Anew"),
        ("rabbit", "/exchanges/orders.real/eu%3anew", "/exchanges/orders.real/eu%3Anew"),
        ("rabbit", "/exchanges/orders.real", "/exchanges/orders.real/"),
        ("rabbit", "/exchanges/dead/", "/exchanges/dead"),
        ("rabbit", "/queues/plain", "plain"),
        ("rabbit", "plain", "plain"),
        ("amq", "/queue/bills", "bills"),
        ("amq", "invoices", "/queue/invoices"),
        ("amq", "/topic/events.new", "/topic/events.new"),
    ],
)
def test_what_arrives_is_recorded_at_the_address_that_the_ledger_has(broker: str, address: str, recorded: str, tmp_path: Path) -> None:
    told = call("observe", address, "--broker", broker, "--take", "--to", "observed")

    assert told.exit_code == 0
    assert (f"recorded as {recorded}, as the ledger has it" in told.stderr) == (recorded != address)
    (file,) = (tmp_path / "observed").rglob("*.parquet")
    assert pq.read_table(file, partitioning=None)["destination"].to_pylist() == [recorded]


@pytest.mark.usefixtures("arrival")
@pytest.mark.parametrize(
    ("broker", "address"),
    [
        ("rabbit", "/exchanges/shop/eu:new"),
        ("rabbit", "/exchanges/one.real/eu:new"),  # what comes through that gate goes to the route's address
        ("rabbit", "/queues/another"),
        ("other", "/queues/plain"),
        ("amq", "another"),
        ("kafka", "plain"),
    ],
)
def test_what_only_producers_name_is_recorded_as_it_was_given(broker: str, address: str, tmp_path: Path) -> None:
    assert call("observe", address, "--broker", broker, "--take", "--to", "observed").exit_code == 0

    (file,) = (tmp_path / "observed").rglob("*.parquet")
    assert pq.read_table(file, partitioning=None)["destination"].to_pylist() == [address]


@pytest.mark.usefixtures("arrival")
def test_where_routes_write_one_destination_in_two_ways_an_observer_says_so(tmp_path: Path) -> None:
    again = "  - {name: two, from: {broker: rabbit, queue: in3}, to: {broker: rabbit, address: /queues/plain}}\n"
    (tmp_path / "delaybridge.yaml").write_text(BROKERS + again)

    told = call("observe", "/queues/plain", "--broker", "rabbit", "--take", "--to", "observed")

    assert "the ledger also has it as plain" in told.stderr
    assert "recorded as" not in told.stderr


@pytest.mark.usefixtures("arrival")
@pytest.mark.parametrize("key", ["%23", "#", "eu.*", "*.new"])
def test_a_pattern_of_keys_is_shown_but_not_recorded_as_if_it_were_one_address(key: str, tmp_path: Path) -> None:
    address = f"/exchanges/orders.real/{key}"

    refused = call("observe", address, "--broker", "rabbit", "--to", "observed")

    assert refused.exit_code == 2
    assert "Record each key by itself" in refused.stderr
    assert not (tmp_path / "observed").exists()
    assert call("observe", address, "--broker", "rabbit").exit_code == 0
