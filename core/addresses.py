"""Addresses of this machine alone."""

from __future__ import annotations

import ipaddress

LOOPBACK = "127.0.0.1"
LOOPBACK_V6 = "::1"


def is_loopback(host: str) -> bool:
    """Whether the host of a URL is this machine, by its name or address alone: nothing is looked up."""
    if host == "localhost" or host.endswith(".localhost"):  # RFC 6761, section 6.3
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
