"""What the README shows works as shown."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from delaybridge.adapters.instrument.command import _parser
from delaybridge.bridge.cli import app
from delaybridge.bridge.config.file import load

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "compose").rglob("*.md")])
COMMANDS = re.findall(r"^    (delaybridge .+)$", README, re.MULTILINE)
FAMILIES = {"audit", "dead-letter"}
"""Commands with commands of their own."""
LINKS = re.compile(r"\]\((?!https?:)([^)#]+)(#[^)]*)?\)")


@pytest.mark.parametrize("block", re.findall(r"```yaml\n(.*?)```", README, re.DOTALL))
def test_the_readmes_configuration_is_valid(block: str, tmp_path: Path) -> None:
    file = tmp_path / "delaybridge.yaml"
    file.write_text(block)

    assert load(file).routes


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_in_the_readme_exists_with_its_options(command: str) -> None:
    words = shlex.split(command)[1:]
    options = [word for word in words if word.startswith("--")]

    told = CliRunner().invoke(app, [*words[: 2 if words[0] in FAMILIES else 1], "--help"])

    assert told.exit_code == 0
    assert [option for option in options if option not in told.output] == []


@pytest.mark.parametrize("command", re.findall(r"^    delaybridge-instrument (.+)$", README, re.MULTILINE))
def test_every_command_that_the_readme_instruments_is_run_as_written(command: str) -> None:
    assert _parser().parse_args(shlex.split(command)).command == shlex.split(command)


@pytest.mark.parametrize("extra", re.findall(r"pip install '\.\[(\w+)\]'", README))
def test_every_extra_in_the_readme_can_be_installed(extra: str) -> None:
    assert extra in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("delaybridge explain")])
def test_what_the_readme_explains_can_be_explained(command: str) -> None:
    assert CliRunner().invoke(app, shlex.split(command)[1:]).exit_code == 0


@pytest.mark.parametrize("target", re.findall(r"^    make (\w+)$", README, re.MULTILINE))
def test_every_make_target_in_the_readme_is_run_by_ci(target: str) -> None:
    assert f"make {target}\n" in (ROOT / ".ci" / "run").read_text()


def test_the_page_on_adapters_names_every_ability_and_no_other() -> None:
    modules = sorted((ROOT / "adapters").glob("*.py"))
    declared = {
        f"{module.stem}.{name}" for module in modules for name in re.findall(r"@runtime_checkable\nclass (\w+)", module.read_text())
    }

    named = re.findall(r"\| `(\w+\.\w+)` \|$", (ROOT / "docs" / "writing-an-adapter.md").read_text(), re.MULTILINE)

    assert sorted(named) == sorted(declared)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    broken = [target for target, _ in LINKS.findall(document.read_text()) if not (document.parent / target).exists()]

    assert broken == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_to_headings_lead_to_one(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", document.read_text())

    broken = [(target, name) for target, name in links if name not in anchors(document.parent / target if target else document)]

    assert broken == []


def anchors(document: Path) -> set[str]:
    """The names that a page's headings can be linked by, as GitHub makes them; the second of one name gets a number."""
    text = re.sub(r"^( *)```.*?^\1```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    names = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]
    return {f"{name}-{earlier}" if (earlier := names[:place].count(name)) else name for place, name in enumerate(names)}
