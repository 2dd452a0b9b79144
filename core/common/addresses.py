"""Checks whether a host name or an address belongs to this machine."""

from __future__ import annotations

import ipaddress
import socket

LOOPBACK = "127.0.0.1"
LOOPBACK_V6 = "::1"


def is_loopback(host: str) -> bool:
    """Whether the host of a URL is `localhost` or a loopback address. Makes no DNS query."""
    if host == "localhost" or host.endswith(".localhost"):  # RFC 6761, section 6.3
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_own(host: str) -> bool:
    """Whether the host of a URL is this machine: a loopback host, or an IP address of a network interface."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return is_loopback(host)
    with socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


def is_local(host: str) -> bool:
    """Whether a server that listens on `host` is reachable only from this machine. Resolves a host name."""
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return bool(addresses) and all(ipaddress.ip_address(item[4][0]).is_loopback for item in addresses)
