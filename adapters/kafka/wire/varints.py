"""Kafka's variable-length integers: zigzag, seven bits at a time, the lowest first."""

from __future__ import annotations


def _encoded(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(0x80 | (rest & 0x7F))
        rest >>= 7
    out.append(rest)
    return bytes(out)


_SMALL = tuple(_encoded(number) for number in range(4096))


def varint(number: int) -> bytes:
    """An integer of 64 bits as Kafka writes it."""
    return _SMALL[number] if 0 <= number < 4096 else _encoded(number)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The integer at a place, and where it ends. Raises IndexError where the data end first, ValueError where it has more than 64 bits."""
    byte = data[at]
    at += 1
    result = byte & 0x7F
    shift = 7
    while byte & 0x80:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise ValueError("an integer of more than 64 bits")
    return (result >> 1) ^ -(result & 1), at
