"""Clients that an application's own tests have replaced, in processes of their own: those of this one are loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest

MODULES = ("kafka.producer.kafka", "confluent_kafka", "aiokafka.producer.producer")


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("stand_in", ["None", "MagicMock()"])
def test_what_stands_in_for_a_client_is_left_alone(module: str, stand_in: str) -> None:
    script = (
        "import sys, delaybridge; from unittest.mock import MagicMock\n"
        f"stand_in = sys.modules[{module!r}] = {stand_in}\n"
        "delaybridge.instrument(); delaybridge.uninstrument()\n"
        f"assert sys.modules[{module!r}] is stand_in"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_other_clients_are_patched_and_restored_beside_it() -> None:
    script = (
        "import sys, delaybridge, kafka\n"
        "before, sys.modules['confluent_kafka'] = kafka.KafkaProducer.send, None\n"
        "delaybridge.instrument(); assert kafka.KafkaProducer.send is not before\n"
        "delaybridge.uninstrument(); assert kafka.KafkaProducer.send is before"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
