"""What the README and the example stacks show works as shown."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from delaybridge.bridge.cli import app
from delaybridge.bridge.config.file import load

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
COMMANDS = re.findall(r"^    (delaybridge .+)$", README, re.MULTILINE)
LINKS = re.compile(r"\]\((?!https?:)([^)#]+)(#[^)]*)?\)")


@pytest.mark.parametrize("block", re.findall(r"```yaml\n(.*?)```", README, re.DOTALL))
def test_the_readmes_configuration_is_valid(block: str, tmp_path: Path) -> None:
    file = tmp_path / "delaybridge.yaml"
    file.write_text(block)

    assert load(file).routes


@pytest.mark.parametrize("file", sorted((ROOT / "compose").rglob("delaybridge.yaml")), ids=str)
def test_every_stacks_configuration_is_valid(file: Path) -> None:
    assert load(file).routes


@pytest.mark.parametrize("file", sorted((ROOT / "compose").rglob("compose.yaml")), ids=str)
def test_every_stack_builds_from_files_that_are_there(file: Path) -> None:
    services = yaml.safe_load(file.read_text())["services"]

    for service in services.values():
        if "build" in service:
            context = (file.parent / service["build"]["context"]).resolve()
            assert (context / service["build"]["dockerfile"]).is_file()
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert not source.startswith(".") or (file.parent / source).is_file()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_in_the_readme_exists_with_its_options(command: str) -> None:
    name, *rest = shlex.split(command)[1:]
    options = [word for word in rest if word.startswith("--")]

    told = CliRunner().invoke(app, [name, "--help"])

    assert told.exit_code == 0
    assert [option for option in options if option not in told.output] == []


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("delaybridge explain")])
def test_what_the_readme_explains_can_be_explained(command: str) -> None:
    assert CliRunner().invoke(app, shlex.split(command)[1:]).exit_code == 0


@pytest.mark.parametrize("target", re.findall(r"^    make (\w+)$", README, re.MULTILINE))
def test_every_make_target_in_the_readme_is_run_by_ci(target: str) -> None:
    assert f"make {target}\n" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize("document", sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]), ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    broken = [target for target, _ in LINKS.findall(document.read_text()) if not (document.parent / target).exists()]

    assert broken == []
