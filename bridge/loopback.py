"""Whether a host name means this machine only."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """`localhost`, or an address of 127.0.0.0/8 or ::1 (with or without brackets). Other names are never resolved: DNS is not to be trusted."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
