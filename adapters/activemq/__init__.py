"""ActiveMQ Classic, over STOMP 1.2 with stomp.py.

Text stays text and bytes stay bytes. What STOMP cannot carry is dead-lettered, never altered:

    an empty text of a producer that does not use STOMP, which may have been a map or an object    unsupported_body, unless `empty_messages: carry`
    a header whose name has more than 255 bytes                                                     too_large; the others are kept
    a header with an escape that STOMP does not know                                                header_damaged

When a message was sent is known from its `timestamp`, which ActiveMQ leaves to the producer's client: a relative delay counts from that time, by the producer's
clock. The broker's timeStampPlugin puts its own in its place.
"""

from .entry import adapter
from .options import ActiveMQ, Endpoint

__all__ = ["ActiveMQ", "Endpoint", "adapter"]
