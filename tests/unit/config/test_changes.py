"""What a reload would change."""

from __future__ import annotations

from typing import Any

from delaybridge.bridge.config import Config
from delaybridge.bridge.config.changes import changes


def config(**sections: Any) -> Config:
    route = {"name": "orders", "from": {"broker": "here", "queue": "in"}, "to": {"broker": "here"}}
    return Config.model_validate({"bridge": "b", "brokers": {"here": {"type": "memory"}}, "routes": [route]} | sections)


def test_equal_configurations_have_no_changes() -> None:
    assert changes(config(), config()) == ((), ())


def test_limits_retry_levels_and_destinations_can_be_reloaded() -> None:
    route = {"name": "orders", "from": {"broker": "here", "queue": "in"}, "to": {"broker": "here"}}
    new = config(
        limits={"max_repeat": 5},
        retry={"cap": "5s"},
        logs={"level": "debug"},
        shutdown_timeout="9s",
        routes=[route | {"allow_to": ["a*"], "dead_letter": "dead"}],
    )

    reloadable = ("limits.max_repeat", "logs.level", "retry.cap", "routes.orders.allow_to", "routes.orders.dead_letter", "shutdown_timeout")
    assert changes(config(), new) == (reloadable, ())


def test_a_route_that_is_called_like_a_key_needs_a_restart_to_come_or_go() -> None:
    routes = [
        {"name": name, "from": {"broker": "here", "queue": name}, "to": {"broker": "here"}}
        for name in ("orders.allow_to", "orders.dead_letter")
    ]

    assert changes(config(routes=routes[:1]), config(routes=routes[1:])) == ((), ("routes.orders.allow_to", "routes.orders.dead_letter"))


def test_brokers_sources_ports_and_the_store_need_a_restart() -> None:
    other = {"name": "bills", "from": {"broker": "here", "queue": "bills"}, "to": {"broker": "here"}}
    new = config(brokers={"here": {"type": "memory", "capacity": 3}}, routes=[other], http={"port": 1}, store={"path": "elsewhere"})

    assert changes(config(), new).needs_restart == (
        "brokers.here.capacity",
        "http.port",
        "routes.bills",
        "routes.orders",
        "store.path",
    )


def test_a_key_is_named_as_it_stands_in_the_file() -> None:
    other = {"name": "orders", "from": {"broker": "here", "queue": "elsewhere"}, "to": {"broker": "here"}}

    assert changes(config(), config(routes=[other])).needs_restart == ("routes.orders.from.queue",)


def test_levels_that_are_queues_need_a_restart() -> None:
    store, other = {"kind": "level_queues", "broker": "here"}, {"levels": "1s 2s"}

    assert changes(config(), config(limits=other)) == (("limits.levels",), ())
    assert changes(config(store=store), config(store=store, limits=other)) == ((), ("limits.levels",))


def test_levels_of_the_store_are_those_of_the_limits_and_need_a_restart_as_well() -> None:
    store, some, other = {"kind": "level_queues", "broker": "here"}, {"levels": "1s 5s"}, {"levels": "1s 2s"}
    said = config(store=store | some)

    assert changes(said, config(store=store, limits=some)) == changes(config(store=store, limits=some), said) == ((), ())
    assert changes(said, config(store=store | other)) == ((), ("store.levels",))
    assert changes(said, config(store=store, limits=other)) == ((), ("store.levels",))


def test_the_order_of_routes_is_no_change() -> None:
    routes = [{"name": name, "from": {"broker": "here", "queue": name}, "to": {"broker": "here"}} for name in ("a", "b")]

    assert changes(config(routes=routes), config(routes=routes[::-1])) == ((), ())


def test_a_changed_secret_is_named_and_not_told() -> None:
    found = changes(config(http={"token": "the-old-long-token"}), config(http={"token": "the-new-long-token"}))

    assert found == ((), ("http.token",))
