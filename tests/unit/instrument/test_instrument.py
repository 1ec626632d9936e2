"""What is diverted and what is not, whichever client sends it. The clients themselves: test_clients.py."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import functools
import importlib.util
import inspect
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import aiokafka
import confluent_kafka
import kafka
import pytest

import delaybridge
from delaybridge.adapters.instrument import divert, methods, watch
from delaybridge.adapters.instrument.headers import delayed
from delaybridge.core.headers import DELAY_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:delaybridge.instrument.. came too late")  # for what another test has left

Call = tuple[str, tuple[Any, ...], dict[str, Any]]
ORIGINAL = (
    kafka.KafkaProducer.send,
    aiokafka.AIOKafkaProducer.send,
    aiokafka.AIOKafkaProducer.send_batch,
    confluent_kafka.Producer,
    confluent_kafka.SerializingProducer.__bases__,
)


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    yield
    delaybridge.uninstrument()


class Producer:
    """Remembers what it was asked to send."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def send(self, topic: str, *args: Any, **kwargs: Any) -> None:
        self.calls.append((topic, args, kwargs))


def sent(rule: divert.Rule, *args: Any, **kwargs: Any) -> Call:
    """What arrives at a `send(topic, value, key, headers, partition)` of such a call."""
    producer = Producer()
    divert.use(rule)
    divert.wrapped(Producer.send, 3, 4)(producer, *args, **kwargs)
    return producer.calls[0]


SUFFIX = divert.Rule(".delayed")
SHARED = divert.Rule(".delayed", "delaybridge.in")
NOTE = (
    "delaybridge diverts this message, which carries a delay header, to 'orders.delayed': "
    "`delaybridge apply` makes it, and its producers need WRITE"
)
LATE = [("x-delay", b"5000")]


@pytest.mark.parametrize("name", sorted(name.decode() for name in DELAY_NAMES))
def test_every_delay_header_of_every_dialect_diverts(name: str) -> None:
    assert delayed([("a", b"1"), (name, b"5000")])
    assert delayed([(name.encode(), b"5000")])
    assert delayed({"a": b"1", name: "5000"})


@pytest.mark.parametrize("headers", [dict(LATE).items(), collections.deque(LATE), collections.UserList(LATE)])
def test_headers_divert_in_whatever_they_are_as_aiokafka_takes_them_where_it_is_pure_python(headers: Any) -> None:
    assert sent(SUFFIX, "orders", headers=headers) == ("orders.delayed", (), {"headers": headers})
    assert sent(SHARED, "orders", headers=headers)[2]["headers"] == [*LATE, ("x-delay-to", b"orders")]


@pytest.mark.parametrize("value", [b"5000", b'"5000"', b"PT15M", b"5s", (5000).to_bytes(8), (5000).to_bytes(4), b"tomorrow", b"", None])
def test_what_a_value_means_is_the_bridges_to_say(value: bytes | None) -> None:
    assert delayed([("x-delay", value)])


@pytest.mark.parametrize(
    "headers",
    [
        [],
        {},
        [("traceparent", b"1"), ("X-Delay", b"1"), ("delay", b"1")],
        [("x-delay-id", b"1"), ("x-delay-to", b"orders"), ("x-delay-repeat", b"3")],
        [("x-delay", b"-5000"), ("x-delay-id", b"1"), ("x-delay-occurrence", b"1"), ("x-delay-due", b"1")],
        {"x-delay": "-5000"},
    ],
)
def test_headers_that_ask_for_no_delay_divert_nothing(headers: Any) -> None:
    assert not delayed(headers)


@pytest.mark.parametrize("headers", ["x-delay", [("x-delay",)], [1], [("a", "b", "c")], [([], b"")], 7, iter([("x-delay", b"1")])])
def test_what_is_no_list_of_headers_is_left_to_the_client_to_refuse(headers: Any) -> None:
    assert not delayed(headers)


@pytest.mark.parametrize("value", [b"-L\xae\0", (0x2D << 56).to_bytes(8), b"-5s", b"-tomorrow", b"-"])
def test_what_merely_begins_like_a_negative_number_is_the_bridges_to_read(value: bytes) -> None:
    assert delayed([("x-delay", value)])


def test_only_the_topic_changes() -> None:
    assert sent(SUFFIX, "orders", b"v", b"k", LATE, 3) == ("orders.delayed", (b"v", b"k", LATE, 3), {})
    assert sent(SUFFIX, "orders", headers=LATE, key=b"k", partition=3) == (
        "orders.delayed",
        (),
        {"headers": LATE, "key": b"k", "partition": 3},
    )
    assert sent(SUFFIX, topic="orders", headers=LATE) == ("orders.delayed", (), {"headers": LATE})


def test_an_undelayed_message_is_sent_as_it_was() -> None:
    assert sent(SUFFIX, "orders", b"v", None, [("a", b"1")], 3) == ("orders", (b"v", None, [("a", b"1")], 3), {})
    assert sent(SHARED, "orders", b"v") == ("orders", (b"v",), {})
    assert sent(SHARED, "orders", b"v", headers=None) == ("orders", (b"v",), {"headers": None})


@pytest.mark.parametrize(
    ("topic", "headers", "kind", "notes"),
    [
        ("orders", LATE, TimeoutError, [NOTE]),
        ("orders", LATE, TypeError, []),  # about the arguments
        ("orders", [], TimeoutError, []),
        ("orders.delayed", LATE, TimeoutError, []),
    ],
)
def test_an_error_of_a_diverted_message_names_the_topic_that_the_application_does_not_know(
    topic: str, headers: Any, kind: type[Exception], notes: list[str]
) -> None:
    def send(*_: Any, **__: Any) -> None:
        raise kind("Failed to update metadata after 60.0 secs.")

    divert.use(SUFFIX)
    with pytest.raises(kind, match="Failed to update metadata") as error:
        divert.wrapped(send, 3, 4)(Producer(), topic, b"v", headers=headers)

    assert getattr(error.value, "__notes__", []) == notes


@pytest.mark.parametrize("batched", [False, True], ids=["send", "send_batch"])
@pytest.mark.parametrize(("headers", "told"), [(LATE, True), ([], False)], ids=["diverted", "not"])
def test_so_does_one_that_comes_while_aiokafka_is_awaited(batched: bool, headers: Any, told: bool) -> None:
    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers="127.0.0.1:1")
        producer.client._wait_on_metadata = missing
        batch = producer.create_batch()
        batch.append(timestamp=None, key=b"k", value=b"v", headers=headers)
        try:
            await (producer.send_batch(batch, "orders", partition=0) if batched else producer.send("orders", b"v", headers=headers))
        finally:
            await producer.stop()

    async def missing(_: str) -> None:
        raise TimeoutError("there is no such topic")

    delaybridge.instrument()
    with pytest.raises(TimeoutError) as error:
        asyncio.run(run())
    assert any("'orders.delayed'" in note for note in getattr(error.value, "__notes__", [])) is told


def test_an_error_that_takes_no_note_stays_the_error() -> None:
    @dataclasses.dataclass(frozen=True)
    class InvalidOrderError(Exception):
        order: int

    def send(*_: Any, **__: Any) -> None:
        raise InvalidOrderError(17)  # as an application's serializer may

    divert.use(SUFFIX)
    with pytest.raises(InvalidOrderError):
        divert.wrapped(send, 3, 4)(Producer(), "orders", b"v", headers=LATE)


def test_a_topic_that_is_an_ingress_topic_is_left_alone() -> None:
    assert sent(SUFFIX, "orders.delayed", headers=LATE)[0] == "orders.delayed"
    assert sent(SHARED, "delaybridge.in", headers=LATE) == ("delaybridge.in", (), {"headers": LATE})
    assert sent(SHARED, "orders.delayed", headers=LATE)[0] == "delaybridge.in"


def test_one_ingress_topic_for_all_is_told_where_the_message_goes() -> None:
    assert sent(SHARED, "orders", b"v", None, LATE) == ("delaybridge.in", (b"v", None, [*LATE, ("x-delay-to", b"orders")]), {})
    assert sent(SHARED, "orders", headers={"x-delay": "1"}) == (
        "delaybridge.in",
        (),
        {"headers": {"x-delay": "1", "x-delay-to": b"orders"}},
    )
    assert sent(SHARED, "orders", headers=tuple(LATE))[2]["headers"] == (*LATE, ("x-delay-to", b"orders"))


@pytest.mark.parametrize("name", ["x-delay-to", "x_delay_to", b"x-delay-to"])
def test_a_destination_of_the_producers_own_goes_before(name: str) -> None:
    headers = [*LATE, (name, b"elsewhere")]
    assert sent(SHARED, "orders", headers=headers) == ("delaybridge.in", (), {"headers": headers})


def test_the_headers_that_the_application_holds_are_not_altered() -> None:
    mine = list(LATE)
    sent(SHARED, "orders", headers=mine)
    assert mine == LATE


def test_a_partition_that_one_ingress_topic_for_all_cannot_keep_is_refused() -> None:
    for call in ({"partition": 2}, {"partition": 0}):
        with pytest.raises(ValueError, match=r"cannot go through 'delaybridge\.in'"):
            sent(SHARED, "orders", headers=LATE, **call)
    with pytest.raises(ValueError, match="partition 1 of 'orders'"):
        sent(SHARED, "orders", b"v", b"k", LATE, 1)
    assert sent(SHARED, "orders", headers=LATE, partition=-1)[0] == "delaybridge.in"  # librdkafka's word for any
    assert sent(SHARED, "orders", partition=2)[0] == "orders"


@pytest.mark.parametrize(("suffix", "ingress"), [("", ""), (" delayed", ""), (".delayed", "a/b")])
def test_a_topic_that_cannot_be_is_refused(suffix: str, ingress: str) -> None:
    with pytest.raises(ValueError, match="topic"):
        delaybridge.instrument(suffix, ingress)


def state() -> tuple[Any, ...]:
    return (
        kafka.KafkaProducer.send,
        aiokafka.AIOKafkaProducer.send,
        aiokafka.AIOKafkaProducer.send_batch,
        confluent_kafka.Producer,
        confluent_kafka.SerializingProducer.__bases__,
    )


def test_it_can_be_taken_back() -> None:
    delaybridge.instrument()
    assert not set(state()) & set(ORIGINAL)
    delaybridge.uninstrument()
    assert state() == ORIGINAL
    delaybridge.uninstrument()
    assert state() == ORIGINAL


def test_a_second_call_wraps_nothing_twice_and_its_arguments_hold() -> None:
    delaybridge.instrument()
    once = state()
    delaybridge.instrument(".later")
    assert state() == once
    assert divert.Current.rule is not None
    assert divert.Current.rule.topic("orders") == "orders.later"


@pytest.mark.parametrize("copied", [functools.wraps, lambda _: lambda wrapper: wrapper], ids=["functools.wraps", "plain"])
def test_a_method_that_somebody_wrapped_meanwhile_keeps_that_wrapper(copied: Any) -> None:
    delaybridge.instrument()
    inner = kafka.KafkaProducer.send

    def passing(self: Any, *args: Any, **kwargs: Any) -> Any:
        return inner(self, *args, **kwargs)

    traced = kafka.KafkaProducer.send = copied(inner)(passing)
    try:
        delaybridge.uninstrument()
        assert kafka.KafkaProducer.send is traced
    finally:
        kafka.KafkaProducer.send = ORIGINAL[0]


def test_a_method_that_opentelemetry_or_ddtrace_wrapped_before_is_told_whose_it_is() -> None:
    """They wrap with wrapt, which finds the producer when the method is bound to it, and not among the arguments."""
    wrapt = pytest.importorskip("wrapt")  # testcontainers brings it along
    seen: list[tuple[Any, Any]] = []

    class Traced(Producer):
        def send(self, topic: str, *args: Any, **kwargs: Any) -> None:
            raise NotImplementedError

    def traced(_send: Any, producer: Any, args: Any, _kwargs: Any) -> None:
        seen.append((producer, args[0]))

    wrapt.wrap_function_wrapper(Traced, "send", traced)
    before, producer = vars(Traced)["send"], Traced()
    divert.use(SUFFIX)
    methods.replace(Traced, "send", lambda send: divert.wrapped(send, 3, 4))
    producer.send("orders", b"now")
    producer.send("orders", b"later", headers=LATE)
    assert seen == [(producer, "orders"), (producer, "orders.delayed")]
    methods.restore(Traced, "send")
    assert vars(Traced)["send"] is before


def test_what_was_a_coroutine_function_is_one_still() -> None:
    delaybridge.instrument()
    assert inspect.iscoroutinefunction(aiokafka.AIOKafkaProducer.send)
    assert inspect.iscoroutinefunction(aiokafka.AIOKafkaProducer.send_batch)


def test_many_threads_may_instrument_at_once() -> None:
    threads = [threading.Thread(target=delaybridge.instrument) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    delaybridge.uninstrument()
    assert state() == ORIGINAL


def test_a_module_is_patched_when_it_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "latecomer.py").write_text("value = 1")
    (tmp_path / "bystander.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("latecomer", "bystander"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    patched = []
    watch.start({"latecomer": lambda module: patched.append((module.__name__, module.value))})
    __import__("bystander")
    assert patched == []
    module = __import__("latecomer")
    assert patched == [("latecomer", 1)]
    assert type(module.__loader__).__name__ == "SourceFileLoader"
    assert module.__spec__ is not None
    assert module.__spec__.loader is module.__loader__
    watch.stop()


def test_a_module_that_is_imported_lazily_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "optional.py").write_text("import no_such_module")
    monkeypatch.syspath_prepend(tmp_path)
    spec = importlib.util.find_spec("optional")
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "optional", module)
    spec.loader.exec_module(module)
    delaybridge.instrument()
    assert confluent_kafka.Producer is not ORIGINAL[3]
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        module.anything  # noqa: B018 - only now is it loaded


def test_a_module_that_fails_to_import_fails_as_it_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    watch.start({"broken": lambda _: pytest.fail("patched"), "absent": lambda _: pytest.fail("patched")})
    with pytest.raises(ZeroDivisionError):
        __import__("broken")
    with pytest.raises(ModuleNotFoundError, match="absent"):
        __import__("absent")
    watch.stop()


def test_a_client_of_an_unknown_kind_is_not_imported_and_the_error_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Undiverted, it would send at once what is to be delayed."""
    (tmp_path / "redone.py").write_text("class Producer: pass")
    monkeypatch.syspath_prepend(tmp_path)
    watch.start({"redone": lambda module: methods.replace(module.Producer, "send", lambda send: send)})
    with pytest.raises(KeyError, match="send") as error:
        __import__("redone")
    assert error.value.__notes__ == ["delaybridge cannot instrument this version of redone: docs/interception.md names those that it can"]
    assert "redone" not in sys.modules
    watch.stop()


def test_it_needs_two_libraries_besides_the_clients() -> None:
    """The documentation tells them to whoever cannot have all of the daemon's beside an application. (msgspec uses typing_extensions if it is there.)"""
    script = (
        "import sys; before = set(sys.modules); import delaybridge; delaybridge.instrument();"
        "import delaybridge.adapters.instrument.headers, delaybridge.adapters.instrument.command;"
        "names = {name.partition('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names;"
        "print(sorted(name for name in names - {'typing_extensions'} if not name.startswith('_')))"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout == "['cronsim', 'delaybridge', 'msgspec']\n"


def test_instrumenting_loads_neither_clients_nor_the_core() -> None:
    script = (
        "import delaybridge, sys; delaybridge.instrument();"
        "heavy = {'kafka', 'confluent_kafka', 'aiokafka', 'msgspec', 'pydantic', 'delaybridge.core', 'asyncio'};"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules);"
        "import kafka; assert kafka.KafkaProducer.send.__wrapped__; assert 'aiokafka' not in sys.modules; assert 'pyarrow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_package_offers_it_and_nothing_that_is_not_there() -> None:
    assert callable(delaybridge.instrument)
    with pytest.raises(AttributeError, match="no attribute 'instruments'"):
        delaybridge.__getattr__("instruments")
