"""delaybridge: delayed, repeated and cron messages for Kafka, RabbitMQ and ActiveMQ, beside the broker you already run."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .adapters.instrument import instrument, uninstrument

__all__ = ["instrument", "uninstrument"]


def __getattr__(name: str) -> object:
    """Only who asks for `instrument` loads it; the commands do not."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .adapters import instrument as package  # noqa: PLC0415

    return getattr(package, name)
