"""`delaybridge run`: the engine and the HTTP server under signals, with an exit code that says how it ended.

0   drained after SIGTERM or SIGINT         74  the store failed
1   a thread died                           75  another process has the store open, or the HTTP port
130, 143  a second signal                   78  the configuration cannot be used
"""

from __future__ import annotations

import os
import re
import signal
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from ..adapters.clock import wall_clock
from ..core.durations import HOUR_MS
from ..core.store import StoreError, StoreLocked
from . import tuning
from .control import Control
from .engine import Engine
from .metrics import Gauges, Metrics
from .plugins import UnusableAdapter, traits
from .signals import handled

if TYPE_CHECKING:
    from types import FrameType

    from .config import Config
    from .signals import Bell

log = structlog.get_logger()

LAST_ANSWERS = 5.0
"""Seconds in which HTTP requests may end after the drain, where it left so many; a second in any case."""

CONTAINER = re.compile(r"[0-9a-f]{12}")
"""The host name that Docker and Podman give: the container's id."""

OTHER_SPELLING = Path("delaybridge.yml")

FAILED, STORE_IO, TAKEN, BAD_CONFIG = 1, 74, 75, 78


class Daemon:
    """One run of the bridge, from signals to exit code."""

    _bell: Bell

    def __init__(self, config: Config) -> None:
        self.config = config
        self.exit_code = 0
        self.drained = True
        self._signals = 0
        self._reload = False
        self._metrics = Metrics(version("delaybridge"))

    def run(self) -> int:
        """Run until a signal or a failure; returns the exit code."""
        with handled(self._on_signal) as self._bell:
            return self._open_and_serve()

    def _open_and_serve(self) -> int:
        try:
            self.engine = Engine(self.config, wall_clock, self._metrics, self._failed)
        except StoreLocked as error:
            log.error(  # noqa: TRY400 - the sentence says it all
                "store_locked",
                path=str(self.config.store.path),
                error=str(error),
                fix="stop the other bridge, or give each its own store.path",
            )
            return TAKEN
        except OSError as error:
            log.error(  # noqa: TRY400 - likewise
                "store_failed",
                path=str(self.config.store.path.absolute()),
                error=str(error),
                fix=f"store.path must be a directory, or one that can be made, in which the bridge's user ({os.getuid()}) may write",
            )
            return STORE_IO
        except StoreError as error:
            log.exception("store_failed", path=str(self.config.store.path), error=str(error))
            return STORE_IO
        except UnusableAdapter as error:
            log.error("adapter_unusable", error=str(error))  # noqa: TRY400 - the sentence says it all
            return BAD_CONFIG
        self.control = Control(self.engine)
        return self._serve()

    def _serve(self) -> int:
        from .http import CannotListen, HttpServer  # noqa: PLC0415 - the engine opens its store while nothing else is imported

        self._metrics.watch(self._gauges)
        self._metrics.reloaded(wall_clock() / 1000)
        self._tell_of_no_configuration()
        self._tell_of_name()
        self._tell_of_lost_levels()
        server = HttpServer(self.control, self._metrics, self.config.http)
        try:
            server.bind()  # before anything is taken from a broker: a daemon that cannot serve its API must not begin
            self.engine.start()
            server.start()
            tuning.for_messages()
            log.info(
                "started",
                bridge=self.config.bridge,
                http=server.url,
                routes=[route.name for route in self.config.routes],
                config=str(self.config.file.absolute()) if self.config.file else None,
                store=str(self.config.store.path.absolute()),
            )
            self._wait()
        except CannotListen as error:
            log.error("http_cannot_listen", error=str(error))  # noqa: TRY400 - the sentence says it all
            self.exit_code = TAKEN if error.taken else BAD_CONFIG
        finally:
            if self._signals:
                log.info("stopping", within_seconds=self.config.shutdown_timeout // 1000, again="a second signal stops it at once")
            patience = self.config.shutdown_timeout / 1000
            until = time.monotonic() + patience
            self._drain(patience)
            server.stop(min(LAST_ANSWERS, max(1.0, until - time.monotonic())))
        # A thread that failed has ended as well, and what it had in flight is delivered again.
        log.info("stopped", drained=self.drained and not self.exit_code, exit_code=self.exit_code)
        return self.exit_code

    def _drain(self, patience: float) -> None:
        try:
            self.drained = self.engine.drain(patience)
        except StoreError as error:  # it could not be closed in order: a full disk, say
            self._failed("store", error)

    def _tell_of_no_configuration(self) -> None:
        """Started in another directory than was meant, it would be well and do nothing."""
        if not self.config.embedded:
            return
        if self.config.file is not None:
            fix = f"name brokers and routes in {self.config.file}"
        elif OTHER_SPELLING.exists():
            fix = f"{OTHER_SPELLING} lies there, and is not read: call it delaybridge.yaml, or start with --config {OTHER_SPELLING}"
        else:
            fix = "start where delaybridge.yaml lies, or with --config or DELAYBRIDGE_CONFIG"
        log.warning(
            "no_configuration",
            directory=str(Path.cwd()),
            runs="on the in-process broker, for trying out: no other process can reach it",
            fix=fix,
        )

    def _tell_of_name(self) -> None:
        """A default name may change with the next start: then all who know the bridge by name see another one."""
        config = self.config
        if "bridge" in config.model_fields_set:
            return
        if config.store.kind == "level_queues" or "KUBERNETES_SERVICE_HOST" in os.environ or CONTAINER.fullmatch(config.bridge):
            log.warning(
                "bridge_name_is_host_name",
                bridge=config.bridge,
                fix="set `bridge`: ledger files and Kafka's transactional ids bear this name, so it must stay, and no other bridge may have it",
            )

    def _tell_of_lost_levels(self) -> None:
        """Not refused: trying level queues out needs no broker then, and tests take them for any other."""
        broker = self.config.store.broker
        if broker is not None and traits(self.config.brokers[broker].type).embedded:
            log.warning(
                "level_queues_in_this_process",
                broker=broker,
                lasts="what waits there is lost when the bridge ends",
                fix="name a broker of another type as store.broker, or use kind: time_index",
            )

    def _wait(self) -> None:
        while not self._signals and not self.exit_code:
            self._bell.wait()
            if self._reload:
                self._reload = False
                self._load_again()

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        """First SIGTERM or SIGINT: drain. Second: out at once; what was in flight is delivered again after the next start."""
        if number == signal.SIGHUP:
            self._reload = True
        else:
            self._signals += 1
            if self._signals > 1:
                os._exit(128 + number)

    def _failed(self, worker: str, error: BaseException) -> None:
        """A thread died. Nothing was acknowledged that is not stored, so stopping is safe, and going on would be silent."""
        log.error("worker_failed", worker=worker, error=f"{type(error).__name__}: {error}", exc_info=error)
        self.exit_code = STORE_IO if isinstance(error, StoreError) else FAILED
        self._bell.ring()

    def _load_again(self) -> None:
        from . import logs  # noqa: PLC0415 - only a reload needs these
        from .config.changes import changes  # noqa: PLC0415
        from .config.file import ConfigError, load  # noqa: PLC0415

        try:
            config = load(self.config.file)
        except ConfigError as error:
            log.error("reload_refused", error=str(error), action="the old configuration stays in force")  # noqa: TRY400 - likewise
            return
        except Exception as error:  # a file that nobody thought of must not end a bridge that works
            log.exception("reload_refused", error=repr(error), action="the old configuration stays in force")
            return
        reloadable, needs_restart = changes(self.config, config)
        if needs_restart:
            log.error("reload_refused", needs_restart=needs_restart, action="the old configuration stays in force; restart to change these")
            return
        self.config = config
        self.engine.reload(config)
        logs.set_level(config.logs.level)
        self._metrics.reloaded(wall_clock() / 1000)
        log.info("reloaded", changed=reloadable)

    def _gauges(self) -> Gauges:
        now, store = wall_clock(), self.engine.store
        counts = store.counts()
        return Gauges(
            messages_pending=counts.pending,
            messages_overdue=sum(pending for hour, pending in counts.by_hour.items() if (hour + 1) * HOUR_MS <= now)
            if store.indexed
            else None,
            messages_held=counts.held,
            messages_shelved=counts.shelved if store.indexed else None,
            oldest_overdue_seconds=self.control.oldest_overdue_ms(now) / 1000,
            store_bytes=store.size_bytes(),
            store_free_bytes=store.free_bytes(),
            store_room=store.room(),
            level_queues_refusing=self.engine.queues.refusing,
            ledger_backlog_rows=self.engine.journal.unfiled.count(),
        )


def run(config: Config) -> int:
    """Run the bridge until it is told to stop; returns the exit code of the process. Where a thread works on, the process ends here.

    Python would abort: at exit it unwinds a thread that returns from RocksDB, say from a compaction, which cannot be unwound.
    """
    tuning.for_connections()
    daemon = Daemon(config)
    code = daemon.run()
    if not daemon.drained:
        os._exit(code)
    return code
