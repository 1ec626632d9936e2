"""Python imports this when it starts (module `site`): it instruments, then makes room for the `sitecustomize` that it stands before."""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib would cost each Python that starts some milliseconds


def _instrument() -> None:
    try:
        from delaybridge.adapters.instrument.startup import start  # noqa: PLC0415

        start()
    except Exception as error:  # noqa: BLE001 - an application of a Python without delaybridge must start as well
        if sys.stderr is not None:  # closed (`2>&-`): print would write among the application's data
            print(f"delaybridge-instrument: {sys.executable} diverts nothing: {error}", file=sys.stderr)  # noqa: T201


def _go_on() -> None:
    """Import the next `sitecustomize`, if there is one, in place of this."""
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _HERE]  # noqa: PTH100
    this = sys.modules.pop("sitecustomize")
    try:
        __import__("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", this)


_instrument()
_go_on()
