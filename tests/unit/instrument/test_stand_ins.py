"""Clients that an application's own tests, or its documentation, have replaced, in processes of their own: those of this one are loaded."""

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


def test_an_application_is_documented_where_stand_ins_are_found_in_the_place_of_clients() -> None:
    """Sphinx's `autodoc_mock_imports`: modules whose every attribute is an object that is no class. They send nothing."""
    script = """
import importlib.machinery, sys, types
import delaybridge

class StandIn(types.ModuleType):
    __path__ = ()
    def __getattr__(self, name): return Anything()

class Anything:
    def __getattr__(self, name): return Anything()
    def __mro_entries__(self, bases): return (Anything,)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("kafka", "confluent_kafka", "aiokafka"):
            return importlib.machinery.ModuleSpec(name, self)
    def create_module(self, spec): return StandIn(spec.name)
    def exec_module(self, module): pass

sys.meta_path.insert(0, Finder())
delaybridge.instrument()
import aiokafka.producer.producer, confluent_kafka, kafka.producer.kafka
delaybridge.instrument()
delaybridge.uninstrument()
assert type(confluent_kafka) is type(kafka.producer.kafka) is type(aiokafka.producer.producer) is StandIn
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    "replaced",
    [
        "kafka.producer.kafka.KafkaProducer",
        "kafka.producer.kafka.KafkaProducer.send",
        "aiokafka.producer.producer.AIOKafkaProducer",
        "aiokafka.producer.producer.AIOKafkaProducer.send",
    ],
)
def test_it_can_be_taken_back_while_a_test_has_replaced_a_producer_or_its_method(replaced: str) -> None:
    script = (
        "import aiokafka, confluent_kafka, kafka, delaybridge; from unittest import mock\n"
        "def state(): return confluent_kafka.Producer, kafka.KafkaProducer.send, aiokafka.AIOKafkaProducer.send\n"
        "before = state(); delaybridge.instrument()\n"
        f"with mock.patch({replaced!r}): delaybridge.uninstrument()\n"
        "assert sum(one is not other for one, other in zip(before, state())) == 1, 'all but what was replaced'\n"
        "delaybridge.instrument(); delaybridge.uninstrument(); assert state() == before"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
