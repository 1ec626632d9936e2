"""Brokers for all tests: found or started once per session, Kafka anew now and then; a missing one skips, or fails where DELAYBRIDGE_TEST_REQUIRE names it."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import re
import shutil
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from brokers import activemq as activemq_broker
from brokers import kafka as kafka_broker
from brokers import rabbitmq as rabbitmq_broker
from brokers.common import Unavailable
from brokers.lasting import Lasting
from brokers.private import PrivateProcess
from spark import classes

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from contextlib import AbstractContextManager

pytest.register_assert_rewrite("contract.outcomes", "contract.taking", "crash.traffic", "integration.daemon", "integration.level_queues")

os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
"""For brokers and Spark: none lives long enough here for Java's second compiler to give back the time that it takes, which is a third of a broker's start."""

os.environ.setdefault(classes.OPTIONS, classes.options())

AUDITS = re.compile(r"spark/test_\w+\.py$|/test_audit_\w+\.py$")
"""Files with the fixture `spark`."""

_SAID = 4_000
"""Characters of a broker's output that a failed test shows."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark computes, and tests of brokers wait much of the time: spread among those, it leaves no core idle. Files stay whole, and in their order."""
    files = [(path.parts, list(tests)) for path, tests in itertools.groupby(items, lambda item: item.path)]
    spark = [tests for parts, tests in files if "spark" in parts]
    brokers = [tests for parts, tests in files if not {"spark", "unit"} & set(parts)]
    unit = [tests for parts, tests in files if "unit" in parts]
    places = [((number + 1) / (len(group) + 1), tests) for group in (brokers, spark) for number, tests in enumerate(group)]
    spread = [tests for _, tests in sorted(places, key=lambda place: place[0])]
    items[:] = itertools.chain.from_iterable([*spread, *unit])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist=loadfile`, all that audit go to the same one of several processes: it takes Spark a minute of computing to get going."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 - only where there are several

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = str(super()._split_scope(nodeid))
            return "audits" if AUDITS.search(file) else file

    return Scheduling(config, log)


def required(name: str) -> bool:
    return name in os.environ.get("DELAYBRIDGE_TEST_REQUIRE", "").replace(" ", "").split(",")


def unavailable(name: str, reason: object) -> NoReturn:
    """End a test that cannot have what it needs of this broker: it fails where the broker is required, and is skipped otherwise."""
    if required(name):
        pytest.fail(f"{name} is required: {reason}")
    pytest.skip(str(reason))


def tell(config: pytest.Config, line: str) -> None:
    """Write a line to the terminal; of one of several processes (pytest-xdist), when it ends."""
    if hasattr(config, "workeroutput"):  # what pytest-xdist hands over at the end
        told = config.workeroutput.setdefault("told", [])
        if line not in told:
            told.append(line)
    elif (reporter := config.pluginmanager.get_plugin("terminalreporter")) is not None:
        reporter.write_line(line)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """One of several processes has ended."""
    for line in getattr(node, "workeroutput", {}).get("told", ()):
        tell(node.config, line)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With a failed test, what our brokers said last: their files go with them."""
    report = yield
    if report.failed:
        report.sections += [(f"{broker.name} at {broker.url}", broker.output[-_SAID:]) for broker in PrivateProcess.ours]
    return report


def running(name: str, start: Callable[[], AbstractContextManager[Any]], pytestconfig: pytest.Config) -> Iterator[Any]:
    """A broker for as long as its fixture lives; without one the tests skip, or fail where it is required."""
    try:
        with start() as broker:
            tell(pytestconfig, f"{name}: {broker.provider}")
            yield broker
    except Unavailable as reason:
        unavailable(name.lower(), reason)


@pytest.fixture
def collected() -> Iterator[None]:
    """Clients leave the sockets of failed attempts to the garbage collector: let them be found here, not in the next test."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def rabbitmq(pytestconfig: pytest.Config) -> Iterator[rabbitmq_broker.Broker]:
    """A running RabbitMQ, shared by the session: use queue and exchange names of your own."""
    yield from running("RabbitMQ", rabbitmq_broker.start, pytestconfig)


@pytest.fixture(scope="session")
def kafkas() -> Iterator[Lasting]:
    """Where the fixture `kafka` has its broker from."""
    with contextlib.closing(Lasting()) as lasting:
        yield lasting


@pytest.fixture(scope="module")
def kafka(kafkas: Lasting, pytestconfig: pytest.Config) -> Iterator[kafka_broker.Broker]:
    """A running Kafka, shared by a file's tests, and by some files: use topic and group names of your own. A file may restart it; the next one has another."""
    yield from running("Kafka", kafkas.serving, pytestconfig)


@pytest.fixture(scope="session")
def activemq(pytestconfig: pytest.Config) -> Iterator[activemq_broker.Broker]:
    """A running ActiveMQ, shared by the session: use queue and topic names of your own."""
    yield from running("ActiveMQ", activemq_broker.start, pytestconfig)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark session for all tests that audit: to start it takes four times as long as an audit of a few rows.

    From the fourth audit on it takes less to compile well what is planned again and again, and a third less in the end.
    """
    pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip("there is no `java`")
    from spark.conftest import SMALL  # noqa: PLC0415 - as below, with what imports it

    from delaybridge.spark_jobs.session import COMPILING, session  # noqa: PLC0415 - needs pyspark

    lasting = SMALL | {"spark.driver.extraJavaOptions": " ".join(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=4", *COMPILING])}
    with session(kafka=False, conf=[f"{name}={value}" for name, value in lasting.items()]) as running:
        yield running


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium; without one the tests skip, or fail where it is required."""
    from spark import browser  # noqa: PLC0415 - its driver is imported where it is used

    try:
        return browser.chromium()
    except Unavailable as reason:
        unavailable("chromium", reason)
