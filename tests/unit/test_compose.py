"""The example stacks, as far as they can be looked at without Docker."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml
from brokers import activemq, kafka, rabbitmq

from delaybridge.bridge.cli.doctor import interception
from delaybridge.bridge.config.file import load
from delaybridge.core.durations import parse_duration

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "compose"
FILES = sorted(COMPOSE.glob("*/compose.yaml"))
IMAGES = {module.IMAGE for module in (activemq, kafka, rabbitmq)}
BROKERS = {"rabbitmq", "kafka", "activemq"}
XML = "{http://activemq.apache.org/schema/core}"


def services(file: Path) -> dict[str, dict[str, Any]]:
    """The services of a stack with what they extend; paths in them are absolute."""
    return {name: service(file, name) for name in yaml.safe_load(file.read_text())["services"]}


def service(file: Path, name: str) -> dict[str, Any]:
    own = yaml.safe_load(file.read_text())["services"][name]
    own["volumes"] = [re.sub(r"^\.(?=[/:])", f"{file.parent}", volume) for volume in own.get("volumes", [])]
    extended = own.pop("extends", None)
    if extended is None:
        return dict(own)
    base = service((file.parent / extended["file"]).resolve(), extended["service"])
    return {**base, **own, "volumes": base["volumes"] + own["volumes"]}


def mounts(one: dict[str, Any]) -> dict[str, str]:
    """Source by target."""
    return {target: source for source, target in (volume.split(":")[:2] for volume in one["volumes"])}


@pytest.fixture(params=FILES, ids=lambda file: file.parent.name)
def stack(request: pytest.FixtureRequest) -> Path:
    file: Path = request.param
    return file


@cache
def compose_plugin() -> bool:
    docker = shutil.which("docker")
    return docker is not None and subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode == 0


def test_compose_itself_takes_the_stack_as_it_is(stack: Path) -> None:
    """It needs no daemon for that. All other tests here read YAML, and resolve `extends`, in their own way."""
    if not compose_plugin():
        pytest.skip("there is no `docker compose`")
    told = subprocess.run(["docker", "compose", "-f", stack, "config", "--quiet"], capture_output=True, text=True, check=False)

    assert (told.returncode, told.stderr) == (0, "")


def test_there_is_a_stack_for_each_broker_and_one_for_all() -> None:
    assert {file.parent.name for file in FILES} == BROKERS | {"all"}
    assert BROKERS & services(COMPOSE / "all" / "compose.yaml").keys() == BROKERS


def test_the_bridge_reads_a_valid_configuration_and_is_given_time_to_drain(stack: Path) -> None:
    bridge = services(stack)["delaybridge"]

    configuration = load(Path(mounts(bridge)["/etc/delaybridge.yaml"]))

    assert configuration.routes
    assert parse_duration(bridge["stop_grace_period"]) > configuration.shutdown_timeout


def test_the_bridge_comes_back_when_it_dies_and_stays_away_when_it_is_stopped(stack: Path) -> None:
    assert services(stack)["delaybridge"].get("restart") == "on-failure"


def test_brokers_are_images_that_the_tests_know_and_all_else_is_built_here(stack: Path) -> None:
    images = {each["image"] for each in services(stack).values()}

    assert images <= IMAGES | {"delaybridge"}


def test_nothing_listens_but_on_loopback(stack: Path) -> None:
    ports = [port for each in services(stack).values() for port in each.get("ports", [])]

    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_what_is_mounted_is_there(stack: Path) -> None:
    volumes = yaml.safe_load(stack.read_text())["volumes"]

    for one in services(stack).values():
        for source in mounts(one).values():
            assert source in volumes or Path(source).exists(), source


def test_programs_are_there_and_import_nothing_of_the_bridge(stack: Path) -> None:
    scripts = [Path(mounts(one)["/app"], Path(one["command"][0]).name) for one in services(stack).values() if "/app" in mounts(one)]

    assert {"producer.py", "consumer.py"} <= {script.name for script in scripts}
    for script in scripts:
        imported = {name for node in ast.walk(ast.parse(script.read_text())) for name in _names(node)}
        assert not any("delaybridge" in name for name in imported)


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def test_services_wait_for_services_of_their_stack(stack: Path) -> None:
    all_of_them = services(stack)

    awaited = {name for one in all_of_them.values() for name in one.get("depends_on", {})}

    assert awaited <= all_of_them.keys()


@pytest.mark.parametrize("name", ["rabbitmq", "kafka", "all"])
def test_the_bridge_waits_until_apply_has_made_what_leads_to_it(name: str) -> None:
    """So that it is as `doctor` wants it. On ActiveMQ no client can make it."""
    all_of_them = services(COMPOSE / name / "compose.yaml")

    [awaited] = all_of_them["delaybridge"]["depends_on"]

    assert all_of_them[awaited].get("entrypoint", []) + all_of_them[awaited]["command"] == ["delaybridge", "apply"]


@pytest.mark.parametrize("name", ["activemq", "all"])
def test_activemqs_configuration_holds_what_plan_prints(name: str) -> None:
    configuration = load(COMPOSE / name / "delaybridge.yaml")
    planned: Any = interception(configuration, "amq", configuration.routes)
    broker = ET.parse(COMPOSE / "activemq" / "activemq.xml").getroot().find(f"{XML}broker")
    assert broker is not None
    there = broker.find(f"{XML}destinationInterceptors")
    assert there is not None

    assert _canonical(ET.tostring(there, "unicode")) == _canonical(planned.xml().replace(">", f' xmlns="{XML[1:-1]}">', 1))
    assert broker.get("schedulerSupport") == "false"


def _canonical(xml: str) -> str:
    return ET.canonicalize(xml, strip_text=True, rewrite_prefixes=True)


def test_the_image_is_not_root_and_holds_the_whole_package() -> None:
    dockerfile = (COMPOSE / "Dockerfile").read_text()
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}

    assert re.search(r"^USER [1-9]\d*$", dockerfile, re.MULTILINE)
    assert "--gid 10001" in dockerfile  # also where docs/deploying.md has runAsGroup
    assert re.search(r"^HEALTHCHECK .*\n.*/readyz", dockerfile, re.MULTILINE)
    assert {"adapters", "bridge", "core", "spark_jobs", "__init__.py", "py.typed", "pyproject.toml", "README.md", "LICENSE"} <= let_in
