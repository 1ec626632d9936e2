"""Headers in the shapes in which applications hold them."""

from __future__ import annotations

import subprocess
import sys

from delaybridge.adapters.instrument.headers import addressed


class Traced(list[tuple[str, bytes]]):
    """A list of an application's own, which nobody else can make."""

    def __init__(self, trace: bytes, *, late: bytes) -> None:
        super().__init__([("trace", trace), ("x-delay", late)])


def test_a_list_of_an_applications_own_class_is_addressed_as_a_list() -> None:
    """kafka-python 2 and confluent-kafka take nothing but lists."""
    headers = addressed(Traced(b"1", late=b"5000"), "orders")
    assert headers == [("trace", b"1"), ("x-delay", b"5000"), ("x-delay-to", b"orders")]
    assert type(headers) is list


def test_a_python_that_refuses_to_compare_text_with_bytes_is_instrumented_as_any_other() -> None:
    script = (
        "import delaybridge; delaybridge.instrument(); import aiokafka, confluent_kafka\n"
        "from delaybridge.adapters.instrument.headers import addressed, delayed\n"
        "for name, value in (('x-delay', '5'), ('x-delay', b'5'), (b'x-delay', b'5')): assert delayed([('a', b'1'), (name, value)])\n"
        "assert not delayed({'x-delay': b'-5'})\n"
        "assert addressed([('x-delay-to', b'b'), (b'a', b'1')], 'c') == [('x-delay-to', b'b'), (b'a', b'1')]"
    )
    subprocess.run([sys.executable, "-bb", "-c", script], check=True)
