"""`delaybridge-instrument` as its user runs it: processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).with_name("delaybridge-instrument")
IS_DIVERTED = "import kafka; print(hasattr(kafka.KafkaProducer.send, '__wrapped__'))"
RULE = "from delaybridge.adapters.instrument.divert import Current; print(Current.rule.suffix, Current.rule.ingress)"


def run(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it with these arguments, without a PYTHONPATH of ours."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" and not name.startswith("DELAYBRIDGE_")}
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False, env=clean | environment)


def printed(*arguments: str | Path, **environment: str) -> str:
    done = run(*arguments, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_the_version_is_told() -> None:
    assert printed("--version") == f"delaybridge-instrument {metadata.version('delaybridge')}"


def test_a_script_is_instrumented(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(IS_DIVERTED)
    assert printed(sys.executable, tmp_path / "app.py") == "True"


def test_a_module_is_instrumented(tmp_path: Path) -> None:
    (tmp_path / "shop_worker.py").write_text(IS_DIVERTED)
    assert printed(sys.executable, "-m", "shop_worker", PYTHONPATH=str(tmp_path)) == "True"


def test_a_console_script_is_instrumented(tmp_path: Path) -> None:
    script = tmp_path / "shop"
    script.write_text(f"#!{sys.executable}\n{IS_DIVERTED}\n")
    script.chmod(0o755)
    assert printed("shop", PATH=f"{tmp_path}:{os.environ['PATH']}") == "True"


def test_processes_that_the_command_starts_are_instrumented(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {IS_DIVERTED!r}], check=True)")
    assert printed(sys.executable, tmp_path / "app.py") == "True"


def test_an_application_that_uses_no_client_imports_none() -> None:
    script = "import sys; print(sorted({'kafka', 'confluent_kafka', 'aiokafka', 'msgspec', 'delaybridge.core'} & set(sys.modules)))"
    assert printed(sys.executable, "-c", script) == "[]"


def test_options_of_the_command_are_the_commands_own() -> None:
    assert (
        printed(sys.executable, "-c", "import sys; print(sys.argv[1:])", "--suffix", "--help", "--", "-x")
        == "['--suffix', '--help', '--', '-x']"
    )
    assert printed("--", sys.executable, "-c", "print(1)") == "1"


def test_topics_come_from_options_or_from_the_environment() -> None:
    assert printed(sys.executable, "-c", RULE) == ".delayed"
    assert printed("--suffix", "_later", sys.executable, "-c", RULE) == "_later"
    assert printed("--suffix=.later", "--ingress", "delaybridge.in", sys.executable, "-c", RULE) == ".later delaybridge.in"
    assert printed(sys.executable, "-c", RULE, DELAYBRIDGE_INGRESS_SUFFIX=".later", DELAYBRIDGE_INGRESS_TOPIC="in") == ".later in"
    assert printed("--suffix", ".a", sys.executable, "-c", RULE, DELAYBRIDGE_INGRESS_SUFFIX=".b") == ".a"


def test_the_exit_status_is_the_commands() -> None:
    assert run(sys.executable, "-c", "raise SystemExit(42)").returncode == 42
    assert run(sys.executable, "-c", "import os; os.kill(os.getpid(), 9)").returncode == -signal.SIGKILL


def test_signals_reach_the_command() -> None:
    script = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); print('up', flush=True); signal.pause()"
    with subprocess.Popen([COMMAND, sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.terminate()
        assert process.wait(20) == 7


@pytest.mark.parametrize("name", ["PIPE", "XFSZ"])
def test_signals_that_python_ignores_for_itself_are_the_commands_again(name: str) -> None:
    """A shell script's `yes | head -1` would fail otherwise."""
    assert run("sh", "-c", f"kill -{name} $$").returncode == -signal.Signals[f"SIG{name}"]


def test_what_cannot_be_run_is_said_as_a_shell_says_it(tmp_path: Path) -> None:
    assert run("no-such-command").returncode == 127
    assert "no-such-command: No such file or directory" in run("no-such-command").stderr
    (tmp_path / "plain").write_text("")
    assert run(tmp_path / "plain").returncode == 126


@pytest.mark.parametrize(
    ("arguments", "word"), [((), "name the command"), (("--suffix", "a/b", "true"), "'a/b'"), (("--ingress", "!", "true"), "'!'")]
)
def test_wrong_usage_is_explained(arguments: tuple[str, ...], word: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert word in done.stderr


def test_help_shows_an_example_and_fits_eighty_columns() -> None:
    told = printed("--help", COLUMNS="80")

    assert "delaybridge-instrument python app.py" in told
    assert max(map(len, told.splitlines())) <= 80


def test_a_sitecustomize_of_the_users_runs_as_well(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.custom = __file__")
    (tmp_path / "app.py").write_text(f"import sys, sitecustomize; print(sys.custom == sitecustomize.__file__)\n{IS_DIVERTED}")
    assert printed(sys.executable, tmp_path / "app.py", PYTHONPATH=str(tmp_path)) == "True\nTrue"


def test_opentelemetry_instrument_may_be_the_command(tmp_path: Path) -> None:
    """Its own `sitecustomize` stands before ours and does not go on; what it calls is an entry point."""
    (tmp_path / "sitecustomize.py").write_text(
        "from importlib.metadata import entry_points\nfor one in entry_points(group='opentelemetry_pre_instrument'): one.load()()"
    )
    (tmp_path / "opentelemetry-instrument").write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}:$PYTHONPATH exec "$@"')
    (tmp_path / "opentelemetry-instrument").chmod(0o755)
    assert printed(tmp_path / "opentelemetry-instrument", sys.executable, "-c", IS_DIVERTED) == "True"
    alone = subprocess.run(
        [tmp_path / "opentelemetry-instrument", sys.executable, "-c", IS_DIVERTED], capture_output=True, text=True, check=True
    )
    assert alone.stdout == "False\n"


def test_a_sitecustomize_of_the_users_that_fails_is_pythons_to_report(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import no_such_module")
    done = run(sys.executable, "-c", IS_DIVERTED, PYTHONPATH=str(tmp_path))
    assert done.stdout == "True\n"
    assert "no_such_module" in done.stderr


def test_nothing_is_left_on_the_path(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import sys; print([path for path in sys.path if 'instrument' in path])")
    assert printed(sys.executable, tmp_path / "app.py") == "[]"


def test_an_empty_entry_of_the_path_is_still_the_current_folder(tmp_path: Path) -> None:
    """As `PYTHONPATH=$PYTHONPATH:/srv/lib` leaves it where there was none before."""
    (tmp_path / "app.py").write_text("import os, sys; print(os.getcwd() in sys.path)")
    assert printed(sys.executable, tmp_path / "app.py", PYTHONPATH=f"{os.pathsep}/srv/lib") == "True"
    assert printed(sys.executable, tmp_path / "app.py", PYTHONPATH="") == "False"


def test_a_python_without_delaybridge_runs_and_says_that_it_diverts_nothing(tmp_path: Path) -> None:
    venv.create(tmp_path / "other", with_pip=False)
    done = run(tmp_path / "other" / "bin" / "python", "-c", "print(1)")
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert "diverts nothing: No module named 'delaybridge'" in done.stderr


def test_it_says_nothing_among_the_data_where_standard_error_is_closed(tmp_path: Path) -> None:
    venv.create(tmp_path / "other", with_pip=False)
    assert printed("sh", "-c", f"{tmp_path}/other/bin/python -c 'print(1)' 2>&-") == "1"
