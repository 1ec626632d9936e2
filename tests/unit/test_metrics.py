"""What Prometheus is told, and that docs/metrics.md tells the same."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families
from unit.delivery.lane_bench import T0, Bench, settings

from delaybridge.adapters.base import BackOff, NotConnected, Rejected
from delaybridge.bridge.metrics import PREFIX, TABLE, BatchHistogram, Gauges, Metric, Metrics
from delaybridge.core.reasons import Reason

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family

GAUGES = Gauges(
    messages_pending=5,
    messages_overdue=2,
    messages_held=1,
    messages_shelved=7,
    oldest_overdue_seconds=0.5,
    store_bytes=4096,
    store_free_bytes=10**12,
    store_room=False,
    level_queues_refusing=4,
    ledger_backlog_rows=3,
)


def families(metrics: Metrics) -> dict[str, Family]:
    text, _ = metrics.expose()
    return {family.name: family for family in text_string_to_metric_families(text.decode())}


def value(metrics: Metrics, name: str, **labels: str) -> float:
    """One sample, by its whole name less the prefix."""
    found = [s.value for family in families(metrics).values() for s in family.samples if (s.name, s.labels) == (PREFIX + name, labels)]
    assert len(found) == 1, (name, labels, found)
    return found[0]


@pytest.fixture
def metrics() -> Metrics:
    metrics = Metrics("0.1.0")
    metrics.watch(lambda: GAUGES)
    return metrics


def test_the_exposition_holds_the_table_and_nothing_else(metrics: Metrics) -> None:
    """Names as in the table (a counter's family is its name less `_total`), types and help with them."""
    found = families(metrics)
    assert {(name, family.type, family.documentation) for name, family in found.items()} == {
        (PREFIX + metric.name.removesuffix("_total"), metric.type, metric.help) for metric in TABLE
    }


def test_labels_are_those_of_the_table(metrics: Metrics) -> None:
    metrics.received("r", "b", 1)
    metrics.published("r", "confirmed", 1)
    metrics.lateness("b", [1])
    metrics.dead_letter("no_destination", 1)
    metrics.connected("b", True)
    metrics.reconnect("b")
    labels = {metric.name.removesuffix("_total"): set(metric.labels) for metric in TABLE}
    for name, family in families(metrics).items():
        assert family.samples, name
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == labels[name.removeprefix(PREFIX)]


@pytest.mark.parametrize("metric", TABLE, ids=lambda metric: metric.name)
def test_names_keep_the_rules_of_prometheus(metric: Metric) -> None:
    """Counters end in _total; base units only; a histogram has rising bounds, anything else none."""
    name, kind, labels, text, buckets = metric
    assert name.endswith("_total") == (kind == "counter")
    assert not re.search(r"_(ms|millis|minutes|mb|kb)(_|$)", name)
    assert text.endswith(".")
    assert bool(buckets) == (kind == "histogram")
    assert list(buckets) == sorted(set(buckets))
    assert not set(labels) & {"id", "address", "destination"}


def test_counters_count_whole_batches(metrics: Metrics) -> None:
    metrics.received("orders", "rabbit", 500)
    metrics.received("orders", "rabbit", 1)
    metrics.published("orders", "confirmed", 7)
    metrics.published("orders", "rejected", 1)
    metrics.retries(3)
    metrics.dead_letter(Reason.BAD_CRON, 2)
    metrics.suppressed_duplicates(4)
    metrics.reconnect("rabbit")
    assert value(metrics, "messages_received_total", route="orders", broker="rabbit") == 501
    assert value(metrics, "messages_published_total", route="orders", outcome="confirmed") == 7
    assert value(metrics, "messages_published_total", route="orders", outcome="rejected") == 1
    assert value(metrics, "publish_retries_total") == 3
    assert value(metrics, "dead_letters_total", reason="bad_cron") == 2
    assert value(metrics, "duplicates_suppressed_total") == 4
    assert value(metrics, "broker_reconnects_total", broker="rabbit") == 1


def test_a_broker_has_its_series_of_reconnects_before_the_first_one(metrics: Metrics) -> None:
    metrics.connected("rabbit", up=True)

    assert value(metrics, "broker_reconnects_total", broker="rabbit") == 0


def test_each_reason_has_its_series_before_its_first_dead_letter(metrics: Metrics) -> None:
    assert {value(metrics, "dead_letters_total", reason=reason) for reason in Reason} == {0}


def test_the_store_and_the_configuration_are_told_of(metrics: Metrics) -> None:
    metrics.put(0.003)
    metrics.intake_batch(120)
    metrics.reloaded(1_750_000_000.0)
    assert value(metrics, "store_put_seconds_bucket", le="0.002") == 0
    assert value(metrics, "store_put_seconds_bucket", le="0.005") == 1
    assert value(metrics, "intake_batch_size_sum") == 120
    assert value(metrics, "config_reload_success_timestamp_seconds") == 1_750_000_000
    assert value(metrics, "build_info", version="0.1.0") == 1


def test_gauges_are_read_when_they_are_scraped_and_absent_before() -> None:
    metrics = Metrics("0.1.0")
    assert PREFIX + "messages_pending" not in families(metrics)
    pending = iter([1, 2])
    metrics.watch(
        lambda: Gauges(**{**{name: getattr(GAUGES, name) for name in Gauges.__struct_fields__}, "messages_pending": next(pending)})
    )
    assert [value(metrics, "messages_pending"), value(metrics, "messages_pending")] == [1, 2]


def test_a_gauge_that_nobody_knows_is_absent() -> None:
    metrics = Metrics("0.1.0")
    metrics.watch(lambda: replace(GAUGES, messages_pending=None))
    found = families(metrics)
    assert PREFIX + "messages_pending" not in found
    assert PREFIX + "messages_held" in found


def test_gauges_stand_under_their_own_names(metrics: Metrics) -> None:
    for name in Gauges.__struct_fields__:
        assert value(metrics, name) == float(getattr(GAUGES, name))


def test_a_broker_is_connected_while_all_its_connections_are(metrics: Metrics) -> None:
    metrics.connected("rabbit", True, "intake orders")
    metrics.connected("rabbit", False, "lane rabbit")
    assert value(metrics, "broker_connected", broker="rabbit") == 0
    metrics.connected("rabbit", True, "lane rabbit")
    assert value(metrics, "broker_connected", broker="rabbit") == 1


def test_lateness_is_kept_per_broker_in_seconds(metrics: Metrics) -> None:
    metrics.lateness("rabbit", [0, 1, 2, 3])
    metrics.lateness("rabbit", [4_000_000])
    metrics.lateness("kafka", [250])
    assert value(metrics, "publish_lateness_seconds_bucket", broker="rabbit", le="0.001") == 2
    assert value(metrics, "publish_lateness_seconds_bucket", broker="rabbit", le="0.005") == 4
    assert value(metrics, "publish_lateness_seconds_bucket", broker="rabbit", le="3600.0") == 4
    assert value(metrics, "publish_lateness_seconds_bucket", broker="rabbit", le="+Inf") == 5
    assert value(metrics, "publish_lateness_seconds_count", broker="rabbit") == 5
    assert value(metrics, "publish_lateness_seconds_sum", broker="rabbit") == pytest.approx(4000.006)
    assert value(metrics, "publish_lateness_seconds_count", broker="kafka") == 1


def test_requested_delays_are_counted(metrics: Metrics) -> None:
    metrics.requested_delay([90_000, 500])
    assert value(metrics, "delay_requested_seconds_bucket", le="1.0") == 1
    assert value(metrics, "delay_requested_seconds_bucket", le="300.0") == 2


def test_a_batch_is_counted_as_its_values_one_by_one_would_be() -> None:
    """The bounds are inclusive, as Prometheus' `le` says, and exact for whole milliseconds."""
    bounds = next(metric.buckets for metric in TABLE if metric.name == "publish_lateness_seconds")
    chance = random.Random(1)
    edges = [round(bound * 1000) + step for bound in bounds for step in (-1, 0, 1)]
    values = edges + [int(chance.expovariate(1 / 300)) for _ in range(1000)]
    chance.shuffle(values)
    histogram = BatchHistogram(bounds)
    for start in range(0, len(values), 37):
        histogram.observe(values[start : start + 37])
    histogram.observe([])
    buckets, total = histogram.read()
    expected = [sum(v <= round(bound * 1000) for v in values) for bound in bounds]
    assert [count for _, count in buckets] == [*expected, len(values)]
    assert total == pytest.approx(sum(values) / 1000)


def test_what_became_of_each_attempt_to_publish_is_told(tmp_path: Path) -> None:
    answers = {
        "confirmed": None,
        "held": BackOff(Reason.UNROUTABLE, ""),
        "rejected": Rejected(Reason.TOO_LARGE, ""),
        "unknown": NotConnected(""),
    }
    bench = Bench(tmp_path / "store", settings())
    for name in answers:
        bench.put(name, T0, address=name)
    bench.tick(T0)
    bench.answer(lambda out: answers[out.address])
    bench.tick(T0 + 500)

    metrics = bench.lane._metrics
    assert {name: value(metrics, "messages_published_total", route="orders", outcome=name) for name in answers} == dict.fromkeys(answers, 1)
    assert value(metrics, "publish_lateness_seconds_count", broker="rabbit") == bench.lane.published == 1
    assert value(metrics, "publish_lateness_seconds_sum", broker="rabbit") == 0.5
    assert value(metrics, "publish_retries_total") == 2
    assert value(metrics, "dead_letters_total", reason="too_large") == 1
    bench.store.close()


def test_two_bridges_in_one_process_do_not_meet() -> None:
    one, other = Metrics("1"), Metrics("2")
    one.retries(1)
    assert value(other, "publish_retries_total") == 0


def test_the_documentation_is_the_table() -> None:
    rows = [
        f"| `{PREFIX}{metric.name}` | {metric.type} | {', '.join(f'`{label}`' for label in metric.labels)} | {metric.help} |"
        for metric in TABLE
    ]
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    assert re.findall(rf"^\| `{PREFIX}.*(?:counter|gauge|histogram).*$", page, re.MULTILINE) == rows
