"""What is shipped, and who may import whom."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FOLDERS = ("adapters", "bridge", "core", "spark_jobs")
MAY_IMPORT = {"core": set(), "adapters": {"core"}, "bridge": {"core", "adapters"}, "spark_jobs": {"core"}}
CLIENTS = {"pika": "rabbitmq", "kafka": "kafka", "stomp": "activemq", "pyspark": "spark_jobs"}


def _modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def _imports(module: Path) -> Iterator[tuple[str, str]]:
    """Each import as (top folder or distribution, full dotted name), relative ones resolved."""
    package = module.relative_to(ROOT).parts[:-1]
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name.split(".")[0], alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            dotted = [*base, *(node.module or "").split(".")] if node.module else list(base)
            names = dotted or [node.names[0].name]
            yield names[0], ".".join(names)


def test_the_list_of_packages_is_what_is_on_disk() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]

    on_disk = {".".join(["delaybridge", *path.parent.relative_to(ROOT).parts]) for folder in FOLDERS for path in _modules(folder)}

    assert sorted(on_disk | {"delaybridge"}) == sorted(listed)


def test_every_folder_of_modules_is_a_package() -> None:
    missing = [folder for top in FOLDERS for folder in {module.parent for module in _modules(top)} if not (folder / "__init__.py").exists()]

    assert missing == []


def test_the_root_holds_one_python_file_which_imports_nothing_until_it_is_asked_to() -> None:
    assert [path.name for path in ROOT.glob("*.py")] == ["__init__.py"]

    loaded = [node for node in ast.parse((ROOT / "__init__.py").read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]
    script = "import sys; before = set(sys.modules); import delaybridge; print(sorted(set(sys.modules) - before))"
    imported = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    assert loaded == []
    assert imported.strip() == "['delaybridge']"


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_run_one_way(folder: str) -> None:
    strays = [
        f"{module.relative_to(ROOT)} imports {name}"
        for module in _modules(folder)
        for top, name in _imports(module)
        if top in FOLDERS and top != folder and top not in MAY_IMPORT[folder]
    ]

    assert strays == []


def _dotted(module: Path) -> str:
    return ".".join(module.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _used(module: Path) -> set[str]:
    """The names that it imports from ours, each with what it is imported from: either may be a module. What is imported for its types counts, too."""
    package = module.relative_to(ROOT).parts[:-1]
    found = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])
            found |= {f"{base}.{alias.name}" for alias in node.names} | ({base} if node.module else set())
    return found


def test_no_modules_import_each_other_in_a_circle() -> None:
    modules = {_dotted(module): module for folder in FOLDERS for module in _modules(folder)}

    TopologicalSorter({name: (_used(module) & modules.keys()) - {name} for name, module in modules.items()}).prepare()


def test_no_folders_that_stand_side_by_side_import_each_other_in_a_circle() -> None:
    modules = {_dotted(module): module for folder in FOLDERS for module in _modules(folder)}
    uses: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for module in modules.values():
        user = module.parent.relative_to(ROOT).parts
        for name in _used(module) & modules.keys():
            used = modules[name].parent.relative_to(ROOT).parts
            depth = next((at for at, (mine, other) in enumerate(zip(user, used, strict=False)) if mine != other), None)
            if depth is not None:
                uses.setdefault(user[: depth + 1], set()).add(used[: depth + 1])

    TopologicalSorter(uses).prepare()


def test_spark_jobs_know_only_the_ledgers_schema_when_a_cron_matches_and_how_long_time_is() -> None:
    known = {"core.ledger", "core.cron", "core.durations"}
    strays = [name for module in _modules("spark_jobs") for top, name in _imports(module) if top == "core" and name not in known]

    assert strays == []


def test_each_client_library_is_imported_by_its_own_adapter_only() -> None:
    strays = [
        f"{module.relative_to(ROOT)} imports {name}"
        for folder in FOLDERS
        for module in _modules(folder)
        for top, name in _imports(module)
        if top in CLIENTS and not str(module.relative_to(ROOT)).removeprefix("adapters/").startswith(CLIENTS[top])
    ]

    assert strays == []


CLOCKS = {
    "time.time",
    "time.time_ns",
    "time.monotonic",
    "time.perf_counter",
    "time.clock_gettime",
    "time.sleep",
    "datetime.now",
    "datetime.utcnow",
    "date.today",
}
"""What tells the time, or waits."""
IN_CORE = {
    "core/time_index/database.py uses time.sleep",  # while the database stalls, it waits here, where other threads can run
    "core/time_index/disk.py uses time.monotonic",  # an argument's default: how long ago the disk was looked at
}


def test_the_core_reads_no_clock_and_waits_for_nothing_but_its_disk() -> None:
    uses = {
        f"{module.relative_to(ROOT)} uses {ast.unparse(node)}"
        for module in _modules("core")
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in CLOCKS
    }

    assert uses == IN_CORE


SEE = re.compile(r"\b[Ss]ee `?(?:[a-z_]+\.)*([a-z_]+)\.([A-Z]\w+)")
"""As in `See base.Sink`: a module of ours, and a class or an alias that it makes."""


def test_a_docstring_that_refers_to_a_contract_names_the_module_that_has_it() -> None:
    modules = [module for folder in FOLDERS for module in _modules(folder)]
    there: dict[str, set[str]] = {}
    for module in modules:
        made = there.setdefault(module.stem, set())
        for node in ast.parse(module.read_text()).body:
            if isinstance(node, ast.ClassDef):
                made.add(node.name)
            elif isinstance(node, ast.Assign):
                made |= {target.id for target in node.targets if isinstance(target, ast.Name)}

    strays = {
        f"{module.relative_to(ROOT)}: {name}.{wanted}"
        for module in modules
        for name, wanted in SEE.findall(module.read_text())
        if wanted not in there.get(name, ())
    }

    assert strays == set()


def test_no_source_file_is_longer_than_400_lines() -> None:
    long = {
        str(module.relative_to(ROOT)): count
        for folder in (*FOLDERS, "tests")
        for module in _modules(folder)
        if (count := len(module.read_text().splitlines())) > 400
    }

    assert long == {}
