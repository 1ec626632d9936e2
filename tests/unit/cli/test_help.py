"""`--help` of every command: what it says, and that it is quick."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from fake_daemon import call

from delaybridge.adapters.rabbitmq.address import parse
from delaybridge.bridge.cli import app

pytestmark = pytest.mark.usefixtures("alone")
README = Path(__file__).parents[3] / "README.md"


def every_command() -> list[str]:
    words = []
    for name in app.registered_groups:
        assert name.typer_instance is not None
        for command in name.typer_instance.registered_commands:
            assert command.callback is not None
            own = command.name or command.callback.__name__.replace("_", "-")
            words.append(f"{name.name} {own}" if isinstance(name.name, str) else own)
    return words


@pytest.mark.parametrize("command", every_command())
def test_every_command_has_a_help_text_and_an_example_of_itself(command: str) -> None:
    told = call(*command.split(), "--help")

    assert told.exit_code == 0
    assert f"Example: delaybridge {command}" in " ".join(told.stdout.split())
    assert len(told.stdout.splitlines()[2].strip()) > 10


@pytest.mark.parametrize("command", [each for each in every_command() if not each.startswith(("audit", "migrate-store"))])
def test_an_example_stands_on_one_line_of_eighty_columns_so_that_it_can_be_copied(command: str) -> None:
    last = call(*command.split(), "--help").stdout.rstrip().splitlines()[-1]

    assert last.strip().startswith(f"Example: delaybridge {command}")


def test_the_example_of_send_goes_where_the_producer_of_the_readme_publishes() -> None:
    address = call("send", "--help").stdout.partition("Example: ")[2].partition("--address ")[2].split()[0]

    assert parse(address) == (b"orders", b"eu")
    assert 'channel.basic_publish("orders", "eu", ' in README.read_text()


@pytest.mark.parametrize("command", [each for each in every_command() if not each.startswith("audit")])
def test_an_option_says_what_it_takes_and_not_of_which_type_python_has_it(command: str) -> None:
    options = call(*command.split(), "--help").stdout.partition("Options:")[2]

    assert re.findall(r"<(?!\w+\|).+>", options) == []


@pytest.mark.parametrize("command", [[], ["status"], ["run"]])
def test_help_imports_nothing_heavy(command: list[str]) -> None:
    """Each of these takes a good part of the 0.3 s that a person does not notice. Pydantic is typer's own choice."""
    heavy = ("pydantic_settings", "httpx", "pika", "rocksdict", "rich", "pyarrow", "structlog", "msgspec", "yaml", "starlette", "uvicorn")
    code = f"""import atexit, sys, delaybridge.bridge.cli
atexit.register(lambda: print([name for name in {heavy} if name in sys.modules]))
delaybridge.bridge.cli.main()"""
    told = subprocess.run([sys.executable, "-c", code, *command, "--help"], check=True, capture_output=True, text=True).stdout

    assert told.strip().splitlines()[-1] == "[]"
