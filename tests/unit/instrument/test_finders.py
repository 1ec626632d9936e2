"""Import hooks of others that find modules as ours does, by asking all others."""

from __future__ import annotations

import subprocess
import sys

IS_DIVERTED = "import aiokafka, kafka; print(hasattr(kafka.KafkaProducer.send, '__wrapped__'), hasattr(aiokafka.AIOKafkaProducer.send, '__wrapped__'))"
ASKING = """
import sys, delaybridge

class Asking:
    def find_spec(self, name, path=None, target=None):
        specs = (each.find_spec(name, path, target) for each in sys.meta_path if each is not self)
        return next((spec for spec in specs if spec is not None), None)

def install(): sys.meta_path.insert(0, Asking())
"""


def printed(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout


def test_a_hook_that_asks_all_others_may_stand_before_ours() -> None:
    """As that of slipcover, which measures coverage."""
    assert printed(f"{ASKING}delaybridge.instrument(); install()\n{IS_DIVERTED}") == "True True\n"


def test_a_hook_that_asks_all_others_may_stand_behind_ours() -> None:
    assert printed(f"{ASKING}install(); delaybridge.instrument()\n{IS_DIVERTED}") == "True True\n"


def test_modules_that_a_test_forgets_may_be_imported_and_instrumented_again() -> None:
    """`unittest.mock.patch.dict(sys.modules)` forgets what was imported meanwhile, but not the hooks."""
    script = (
        "import sys; from unittest import mock\n"
        "for _ in range(2):\n"
        "    with mock.patch.dict(sys.modules):\n"
        "        import delaybridge, kafka\n"
        "        delaybridge.instrument()\n"
        "        import aiokafka\n"
        "        print(hasattr(kafka.KafkaProducer.send, '__wrapped__'), hasattr(aiokafka.AIOKafkaProducer.send, '__wrapped__'))"
    )
    assert printed(script) == "True True\n" * 2
