"""What `delaybridge doctor` looks at, one finding at a time. Nothing here changes anything, but a probe is a message on the broker."""

from __future__ import annotations

import errno
import os
import shutil
import statistics
import tempfile
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import ByteSize

from ...adapters.base import AdapterError, NotConnected
from ...adapters.examining import Examinable
from ...adapters.preparing import Crowded, Finding, Intercepting
from ...adapters.scheduler_requests import Manageable
from ...core.time_index.disk import taken
from .. import plugins
from ..config.file import BROKERLESS, origin
from ..level_queues.build import kept, prepared
from .client import ApiError, UnreachableError
from .status import held_at, not_in_force

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from ...adapters.base import Outcome
    from ...adapters.levelled import LevelDeclaration
    from ...adapters.preparing import Interception
    from ..config import Config, Route
    from ..config.sections import Store
    from .client import Client

_SYNCS = 20
_FILE = 64 << 10
"""Bytes of a small ledger file."""
_SLOW_SYNC_MS = 50
"""Every batch of messages waits for one sync: above this, lateness and throughput are the disk's."""
_FREE = "free some space there"


def findings(config: Config, client: Client, brokers: Sequence[str], *, probe: bool) -> Iterator[Finding]:
    """Everything, in the order in which things depend on each other. A probe is sent only where all else is well."""
    seen: list[Finding] = []
    for finding in (*_machine(config), *_brokers(config, brokers), *_daemon(config, client)):
        seen.append(finding)
        yield finding
    if probe and all(finding.ok for finding in seen):
        for name in brokers:
            yield from _probed(config, name)


def _probed(config: Config, broker: str) -> Iterator[Finding]:
    """Send the probes, but not by routes to another broker: nobody waits for it there. These are named instead."""
    own = [route for route in config.routes if route.source.broker == route.to.broker]
    yield from _guarded(broker, config, own, lambda prepared: prepared.probe())
    for route in config.routes:
        if route.source.broker == broker != route.to.broker:
            why = f"it delivers on `{route.to.broker}`: send a message through it to see it arrive"
            yield Finding(True, f"{broker}: route `{route.name}` was not probed, because {why}")


def interception(config: Config, broker: str, routes: Sequence[Route]) -> Interception | None:
    """How this broker is prepared for those of the routes that read from it; None where it needs nothing. Raises AdapterError."""
    section = config.brokers[broker]
    adapter = plugins.adapter(section.type)
    if not isinstance(adapter, Intercepting):
        return None
    return adapter.interception(section.options, _read(routes, broker))


def _read(routes: Sequence[Route], broker: str) -> list[Any]:
    """The `from` sections of those of these routes that read from a broker."""
    return [route.source.endpoint for route in routes if route.source.broker == broker]


def preparations(config: Config, broker: str, only: str | None) -> list[Interception | LevelDeclaration]:
    """All that this broker is prepared with: `interception`, and `level_queues` where it holds them; or `only` one of these.

    Raises AdapterError and plugins.UnusableAdapter.
    """
    parts: list[Interception | LevelDeclaration | None] = []
    if only != "level_queues":
        parts.append(interception(config, broker, config.routes))
    if only != "interception" and config.store.broker == broker:
        parts.append(prepared(config))
    return [part for part in parts if part is not None]


def _machine(config: Config) -> Iterator[Finding]:
    yield Finding(True, f"the configuration is valid ({origin(config)})")
    if config.brokerless:
        yield Finding(False, f"{config.file}: {BROKERLESS}", "name brokers and routes in it; to try the bridge out, give it no file")
    folder = _there(config.store.path)
    if not folder.is_dir():
        yield Finding(
            False, f"{folder} is not a directory: the store cannot be there", "set store.path to a directory that exists or can be created"
        )
        return
    yield from _room(config.store, folder)
    yield _sync(folder)
    yield _ledger(_there(config.ledger_path))


def _there(path: Path) -> Path:
    """The path, or the nearest one above it that is there."""
    path = path.absolute()
    # As `exists`, which raises where a directory may not be entered.
    return next(each for each in (path, *path.parents) if os.access(each, os.F_OK))


def _ledger(folder: Path) -> Finding:
    """The bridge delivers without its ledger's files, and keeps the rows until its disk is full."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_FILE))
            file.flush()
            return Finding(True, f"the ledger can be written in {folder}")
    except OSError as error:
        place = "set ledger.path to a directory that exists or can be created, in which the bridge's user may write"
        return Finding(False, f"the ledger cannot be written in {folder}: {error.strerror}", _FREE if _is_full(error) else place)


def _room(store: Store, folder: Path) -> Iterator[Finding]:
    below = f"intake stops below {store.min_free_disk.human_readable(separator=' ')}"
    free = shutil.disk_usage(folder).free
    text = f"{ByteSize(free).human_readable(separator=' ')} are free for the store in {folder}"
    yield Finding(free > store.min_free_disk, text, f"free some: {below}")
    if store.max_size is not None:
        try:
            left = store.max_size - taken(store.path)
        except OSError as error:
            yield Finding(False, f"cannot read the store in {store.path}: {error.strerror}", "ask as the bridge's user")
            return
        text = f"{ByteSize(max(0, left)).human_readable(separator=' ')} of store.max_size ({store.max_size.human_readable(separator=' ')}) are left"
        yield Finding(left > store.min_free_disk, text, f"raise it, or wait until messages are delivered: {below}")


def _sync(folder: Path) -> Finding:
    try:
        times = sorted(_sync_times(folder))
    except OSError as error:
        place = "let the bridge's user write there, or set store.path"
        return Finding(False, f"cannot write in {folder}: {error.strerror}", _FREE if _is_full(error) else place)
    median = statistics.median(times)
    text = f"the disk of the store syncs in {median:.1f} ms (slowest of {_SYNCS}: {times[-1]:.1f} ms)"
    return Finding(median <= _SLOW_SYNC_MS, text, "put store.path on a local solid-state disk: every batch of messages waits for one sync")


def _is_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def _sync_times(folder: Path) -> Iterator[float]:
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(_SYNCS):
            file.write(bytes(4096))
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            yield (time.perf_counter() - began) * 1000


def _brokers(config: Config, brokers: Sequence[str]) -> Iterator[Finding]:
    for name in brokers:
        reached = _reached(config, name)
        yield reached
        if reached.ok:
            yield from _guarded(name, config, config.routes, lambda prepared: [*prepared.check(), *_alone(config, prepared)])
        if reached.ok and config.store.broker == name:
            yield from _told(name, lambda: _levels(config))
        if reached.ok:
            yield from _told(name, partial(_standstills, config, name))
            yield from _told(name, partial(_management, config, name))


def _alone(config: Config, prepared: Interception) -> Iterator[Finding]:
    """Each time index is one bridge's own: what another bridge holds can be neither cancelled nor replaced there."""
    if config.store.kind != "time_index" or not isinstance(prepared, Crowded):
        return
    fix = "one bridge for each ingress queue, or level queues (docs/scaling.md), which bridges share; a connection that was lost counts for a while"
    for queue, count in prepared.crowds().items():
        what = (
            f"{count} consumers share queue `{queue}`, each with a store of its own: a cancellation or replacement may reach the wrong one"
        )
        yield Finding(False, what, fix)


def _levels(config: Config) -> Iterator[Finding]:
    missing = [step for step in prepared(config).plan() if not step.done]
    for step in missing:
        fix = step.command if step.by_hand else f"delaybridge apply --broker {config.store.broker}, or: {step.command}"
        yield Finding(False, f"to do: {step.what}", fix)
    if not missing:
        yield Finding(True, "the level queues are as they should be")


def _standstills(config: Config, broker: str) -> list[Finding]:
    section = config.brokers[broker]
    adapter = plugins.adapter(section.type)
    if not isinstance(adapter, Examinable):
        return []
    written = [
        address for route in config.routes if route.to.broker == broker for address in (route.to.address, route.dead_letter) if address
    ]
    levels = kept(config) if config.store.broker == broker else []
    return adapter.standstills(section.options, _read(config.routes, broker), written, levels)


def _management(config: Config, broker: str) -> Iterator[Finding]:
    """Whether messages to the broker's own scheduler can be read. If not, the bridge tries for ever, and nothing else would tell."""
    section = config.brokers[broker]
    adapter = plugins.adapter(section.type)
    if config.store.kind != "time_index" or not _read(config.routes, broker) or not isinstance(adapter, Manageable):
        return
    for management in adapter.management(section.options):
        try:
            management.connect()
        except NotConnected as error:
            fix = f"let the user of brokers.{broker} do this, or set brokers.{broker}.management to false"
            yield Finding(False, f"messages to the broker's own scheduler do not come to the bridge: {error}", fix)
        finally:
            management.close()


def _reached(config: Config, broker: str) -> Finding:
    section = config.brokers[broker]
    sink = plugins.adapter(section.type).sink(section.options)
    try:
        sink.connect(_ignore)
    except AdapterError as error:
        fix = f"check that the broker runs, and that brokers.{broker} has its address and credentials"
        if "CERTIFICATE_VERIFY_FAILED" in str(error):  # OpenSSL's own word, on every broker
            fix = f"name the authority of its certificate in brokers.{broker}.tls.ca_file, and the broker as the certificate does"
        return Finding(False, f"{broker}: {error}", fix)
    finally:
        sink.close()
    return Finding(True, f"{broker}: the broker answers")


def _ignore(_: Sequence[Outcome]) -> None:
    """Nothing is published here."""


def _guarded(broker: str, config: Config, routes: Sequence[Route], look: Callable[[Interception], list[Finding]]) -> Iterator[Finding]:
    try:
        part = interception(config, broker, routes)
    except (AdapterError, plugins.UnusableAdapter) as error:
        yield Finding(False, f"{broker}: {error}")  # no broker was asked yet: the routes contradict each other, and it says which
        return
    if part is not None:
        yield from _told(broker, lambda: look(part))


def _told(broker: str, found: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Findings about a broker; what stops it from being looked at is one as well."""
    try:
        for finding in found():
            yield Finding(finding.ok, f"{broker}: {finding.what}", finding.fix)
    except NotConnected as error:
        # Also from what is beside the broker, such as a management API, and where a connection is closed to refuse.
        may = f"check that what this names runs as well, that the user of brokers.{broker} may do this, and the broker's own log"
        yield Finding(False, f"{broker}: {error}", f"the broker itself answered before: {may}")
    except AdapterError as error:
        fix = f"the broker answers, but not to this: check that the user of brokers.{broker} may do it, and the broker's own log"
        yield Finding(False, f"{broker}: {error}", fix)
    except plugins.UnusableAdapter as error:
        yield Finding(False, f"{broker}: {error}")  # it says what to do


def _daemon(config: Config, client: Client) -> Iterator[Finding]:
    try:
        status = client.status()
    except (UnreachableError, ApiError) as error:
        yield Finding(False, str(error))
        return
    text = f"the daemon runs ({status['bridge']}, {status['version']}) and is {'ready' if status['ready'] else 'not ready'}"
    read = status.get("config")
    if config.file and read and read != str(config.file.absolute()):
        text += f"; it reads {read}, which may not be this one"
    yield Finding(status["ready"], text, "see `delaybridge status`, or /readyz?verbose, for what it waits for")
    if not status.get("config_usable", True):
        what = f"the daemon could not start again with what {read} says now"
        yield Finding(False, what, f"correct it: `delaybridge check-config {read}` says what is wrong")
    keys, restart = not_in_force(status)
    if keys:
        what = f"the daemon does not run with what {read} says now: {', '.join(keys)} changed since it read that"
        yield Finding(False, what, "restart it" if restart else "let it read the file again (SIGHUP)")
    if reason := status.get("ledger", {}).get("error"):
        yield Finding(
            False, f"the daemon cannot write its ledger: {reason}", "fix that: the rows wait in its store until they can be written"
        )
    lanes = status.get("lanes", ())
    paused = [(route["name"], route["to"].split(" ")[0]) for route in status.get("routes", ()) if route["paused"]]
    for lane in lanes:
        here = [name for name, broker in paused if broker == lane["broker"]]
        for held in lane["held"]:
            yield _held(lane["broker"], held, here)
    for broker in status.get("without_broker", ()):
        what = f"messages wait for a broker {broker!r}, which the daemon's configuration does not name"
        yield Finding(False, what, "name it there until they are gone: `delaybridge status` shows for which addresses they are")


def _held(broker: str, held: dict[str, Any], paused: Sequence[str]) -> Finding:
    if held["retry_at"] is None:
        which = f" ({', '.join(paused)})" if paused else ", which the configuration does not name any more"
        what = f"{broker}: messages for {held_at(held)} wait, because their route is paused{which}"
        return Finding(False, what, f"delaybridge resume {paused[0] if len(paused) == 1 else 'ROUTE'}")
    what = f"{broker}: {held_at(held)} takes no messages, and they are held back: {held['error']}"
    return Finding(False, what, "fix that; they are retried automatically, until `retry.give_up_after`")
