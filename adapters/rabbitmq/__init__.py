"""RabbitMQ, over AMQP 0-9-1 with pika.

Messages keep all 13 properties and every header, type by type, byte for byte. What cannot be kept is dead-lettered, never altered:

    a content header with property flags that AMQP does not define    header_damaged
    headers that no longer fit one frame with the delivery headers     too_large
    a `user_id` other than the bridge's own user                       rejected_by_broker, unless `impersonate` says that the bridge's user
                                                                       has RabbitMQ's `impersonator` tag

An empty header table and none at all are the same thing here.

When the broker received a message is known where it stamps each one with `timestamp_in_ms`, and the option `stamped` says so: a relative delay then counts
from that time. A stamp that a producer can write would be believed as well, so this is off by default.
"""

from .entry import adapter
from .options import Endpoint, RabbitMQ

__all__ = ["Endpoint", "RabbitMQ", "adapter"]
