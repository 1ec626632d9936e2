"""What docs/deploying.md tells an operator to paste and to look for is there."""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from delaybridge.bridge.cli import app
from delaybridge.bridge.config import Config
from delaybridge.bridge.config.file import load
from delaybridge.bridge.daemon import BAD_CONFIG
from delaybridge.bridge.http.endpoints import ENDPOINTS
from delaybridge.bridge.metrics import PREFIX, TABLE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "deploying.md").read_text()
DOCUMENTS: list[dict[str, Any]] = [one for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) for one in yaml.safe_load_all(block)]
CONFIGURATIONS = [yaml.safe_dump(one) for one in DOCUMENTS if "routes" in one] + [
    text for one in DOCUMENTS if one.get("kind") == "ConfigMap" for text in one["data"].values()
]
PODS = [one["spec"]["template"]["spec"] for one in DOCUMENTS if one.get("kind") in {"StatefulSet", "Deployment"}]
RULES = [rule for one in DOCUMENTS for group in one.get("groups", ()) for rule in group["rules"]]
SERIES = {
    PREFIX + metric.name + ending for metric in TABLE for ending in (("_bucket", "_sum", "_count") if metric.type == "histogram" else ("",))
}
COMMANDS = sorted(set(re.findall(r"(?:^|[`/ ]|&& )delaybridge ([a-z][a-z-]+)(?=[ `\n])", PAGE, re.MULTILINE)))
DRAIN = Config.model_fields["shutdown_timeout"].default / 1000
"""Seconds."""


def unit(name: str, section: str = "Service") -> configparser.SectionProxy:
    """A section of the unit that the page calls so."""
    block = re.search(rf"{name}.*?```ini\n(.*?)```", PAGE, re.DOTALL)
    assert block
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(block[1])
    return parser[section]


@pytest.mark.parametrize("text", CONFIGURATIONS)
def test_each_configuration_is_valid(text: str, tmp_path: Path) -> None:
    secret, file = tmp_path / "secret", tmp_path / "delaybridge.yaml"
    secret.write_text("a-secret-of-some-length")
    file.write_text(re.sub(r"(_file: )[^\s,}]+", rf"\1{secret}", text))

    assert load(file).routes


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_metrics_that_the_bridge_has(rule: dict[str, Any]) -> None:
    asked = set(re.findall(rf"\b{PREFIX}\w+", rule["expr"]))

    assert asked - SERIES == set()
    assert asked or "up{" in rule["expr"]


def events(words: str = r"\w+") -> set[str]:
    """What the code logs, by such a method of a logger."""
    logged = re.compile(rf"\blog\.(?:{words})\(\s*(?:#[^\n]*\n\s*)?\"([a-z_]+)\"")
    return {event for part in ("bridge", "adapters") for file in (ROOT / part).rglob("*.py") for event in logged.findall(file.read_text())}


def runbook() -> set[str]:
    rows = re.findall(r"^\| (.+?) \|", PAGE.partition("## Runbook")[2], re.MULTILINE)
    return {word for row in rows for word in re.findall(r"`([a-z_]+)`", row)}


def test_the_runbook_names_events_that_the_bridge_logs() -> None:
    assert len(runbook()) > 20
    assert runbook() - events() == set()


def test_the_runbook_has_a_row_for_each_warning_and_error() -> None:
    assert events("warning|error|exception") - runbook() == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_exists(command: str) -> None:
    assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0


def test_systemd_gives_a_drain_its_time_and_does_not_repeat_what_cannot_work() -> None:
    service = unit("delaybridge.service")

    assert int(service["TimeoutStopSec"]) > DRAIN
    assert str(BAD_CONFIG) in service["RestartPreventExitStatus"].split()


def test_systemd_starts_an_observer_again_however_long_its_broker_is_away() -> None:
    assert unit("delaybridge-observe.service")["Restart"] == "always"
    assert unit("delaybridge-observe.service", "Unit")["StartLimitIntervalSec"] == "0"


@pytest.mark.parametrize("pod", PODS)
def test_kubernetes_gives_a_drain_its_time_and_probes_what_is_there(pod: dict[str, Any]) -> None:
    probes = {endpoint.path for endpoint in ENDPOINTS if endpoint.probe}
    container = pod["containers"][0]

    assert pod["terminationGracePeriodSeconds"] > DRAIN
    assert {container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")} <= probes
