"""Kafka, with kafka-python; record batches and headers are read and written here (`wire`), because the client's own way loses some.

Records keep key, value, every header byte for byte (names that are not UTF-8, duplicates and null values too), and tombstones. What cannot be kept
is dead-lettered, never altered:

    a header name of more than 255 bytes                               header_damaged
    a batch that fails its checksum, or cannot be read, twice          header_damaged; the raw batch is the body
    a header table or array, to Kafka, nested too deep to be JSON      rejected_by_broker

A record is delivered with the time of its delivery; when it was first sent stands in the header `x-delay-timestamp` (epoch ms).

The partition of a record of `<topic>.delayed` is its producer's choice for `<topic>` and is kept where both have as many partitions. The partition in
any other topic says nothing about a destination: there the key decides, by Kafka's default partitioner, and without a key any partition will do.
"""

from .entry import adapter
from .options import Endpoint, Kafka

__all__ = ["Endpoint", "Kafka", "adapter"]
