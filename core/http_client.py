"""How a server is reached over HTTP: the proxy and the certificates that the environment names, and when to ask again.

The variables are those of curl and OpenSSL: `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` (also in lower
case; on macOS and Windows the system's settings where none is set), `SSL_CERT_FILE` and `SSL_CERT_DIR`. httpx would
read them itself, but raises its own exceptions for a value that it cannot use, has no networks in `NO_PROXY`, and
sends requests to this machine through the proxy.
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import certifi
import httpx
from tenacity import RetryCallState, wait_random_exponential

from edgefront.core.addresses import is_own
from edgefront.core.errors import EdgefrontError, InvalidInput, Unavailable

_MAX_REDIRECTS = 20
_MAX_RETRY_AFTER_S = 3600.0
_PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")
_PROXY = re.compile(r"(\w+://)?(?:(.*)@)?([^@]*)", re.DOTALL)
"""Scheme, user name and password, and the rest of a proxy's URL."""


@dataclass(frozen=True)
class Route:
    """The way to one server."""

    options: Mapping[str, Any]
    """Arguments of `httpx.Client` and `httpx.AsyncClient`."""
    proxy_variable: str | None
    """What names the proxy; None: there is none on the way."""

    def failure(self, error: Exception) -> str:
        """Why a request failed, with the variable that may be the cause."""
        reason = str(error) or type(error).__name__
        if "CERTIFICATE_VERIFY_FAILED" in reason and "mismatch" not in reason:
            return f"{reason}; a CA of your own is trusted if SSL_CERT_FILE names the file with its certificate"
        return f"{reason}{self.through}"

    @contextmanager
    def asking(self, server: str) -> Iterator[None]:
        """Requests on this way. `Unavailable` for each that ends without a final answer: no connection, an answer that
        breaks off or cannot be decoded, endless redirects. The same request may succeed later.
        """
        try:
            yield
        except httpx.RequestError as error:
            raise Unavailable(f"{server} cannot be reached: {self.failure(error)}") from error

    @property
    def through(self) -> str:
        return "" if self.proxy_variable is None else f" (through the proxy that {self.proxy_variable} names)"


def server_url(text: str, *, field: str = "url") -> str:
    """The URL of a server without a trailing slash; it may have a path. `InvalidInput` where it is none."""
    try:
        url = _read(text)
        if url.query or url.fragment:
            raise ValueError("it goes on after its path")
    except ValueError as error:
        raise InvalidInput(
            f"{text!r} is not the URL of a server: {error}",
            field=field,
            value=text,
            allowed="such as http://127.0.0.1:8090 or https://edgefront.example.org",
        ) from None
    return text.rstrip("/")


def valid_url(text: str) -> httpx.URL:
    """The URL of something to fetch; `InvalidInput` where it is none."""
    try:
        return _read(text)
    except ValueError as error:
        raise InvalidInput(f"{text} is not a valid URL: {error}", field="url", value=text) from None


def _read(text: str, schemes: Sequence[str] = ("http", "https")) -> httpx.URL:
    """The URL; ValueError says what is wrong with it."""
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, UnicodeError) as error:
        raise ValueError(str(error)) from None
    if url.scheme not in schemes:
        raise ValueError(f"it does not begin with {' or '.join(f'{scheme}://' for scheme in schemes)}")
    if not url.host:
        raise ValueError("it has no host")
    if url.port is not None and not 0 < url.port < 1 << 16:
        raise ValueError(f"{url.port} is no port")
    return url


def route(url: str) -> Route:
    """The way to a URL. `InvalidInput` names the variable whose value cannot be used."""
    address = valid_url(url)
    named = None if is_own(address.host) else _proxy(address)
    proxy = None if named is None else _read_proxy(*named)
    # Where nothing is encrypted there is nothing to verify, and loading the certificates takes longer than a request.
    verify = _trusted() if address.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return Route({"proxy": proxy, "verify": verify, "trust_env": False}, None if named is None else named[0])


@contextmanager
def stream(url: str, *, headers: Mapping[str, str], timeout_s: float) -> Iterator[httpx.Response]:
    """One GET with a streamed body. Redirects are followed, each by its own route."""
    for _ in range(_MAX_REDIRECTS):
        with (
            httpx.Client(**route(url).options, timeout=timeout_s) as client,
            client.stream("GET", url, headers=dict(headers)) as response,
        ):
            if response.next_request is None:
                yield response
                return
            url = str(response.next_request.url)
    raise httpx.TooManyRedirects(f"more than {_MAX_REDIRECTS} redirects")


def pauses(base_s: float, cap_s: float) -> Callable[[RetryCallState], float]:
    """tenacity's `wait`: exponential back-off with full jitter, never shorter than the server's Retry-After.

    The n-th pause is uniform between 0 and min(cap, base·2ⁿ) seconds; an error's `retry_after_s` bounds it from below.
    """
    jitter = wait_random_exponential(multiplier=base_s, max=cap_s)

    def pause(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked = error.extra.get("retry_after_s") if isinstance(error, EdgefrontError) else None
        return max(jitter(state), asked) if isinstance(asked, (int, float)) else jitter(state)

    return pause


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The seconds of a server's Retry-After, at most an hour; None without one, and for a date, which our server never
    sends.
    """
    try:
        return min(_MAX_RETRY_AFTER_S, max(0.0, float(headers["retry-after"])))
    except (KeyError, ValueError):
        return None


def problem_document(response: httpx.Response) -> dict[str, Any] | None:
    """The problem document (RFC 9457) of an error; None of what is none, such as the error page of a proxy."""
    try:
        document = response.json()
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) and "detail" in document else None


def _proxy(url: httpx.URL) -> tuple[str, str] | None:
    """The variable that names a proxy for the URL, and its value; None where it is to be reached directly."""
    proxies = urllib.request.getproxies()
    entries = re.split(r"[,\s]+", proxies.get("no", ""))
    port = url.port or (443 if url.scheme == "https" else 80)
    if any(_excepts(entry, url.host, port) for entry in entries if entry) or urllib.request.proxy_bypass(url.host):
        return None
    for kind in (url.scheme, "all"):
        if value := proxies.get(kind):
            names = (f"{kind}_proxy", f"{kind}_proxy".upper())
            return next((name for name in names if os.environ.get(name) == value), "the system"), value.strip()
    return None


def _excepts(entry: str, host: str, port: int) -> bool:
    """Whether an entry of `NO_PROXY` is about this host: `*`, a domain with all below it, an address or a network, each
    also with a port. IPv6 addresses may stand in brackets.
    """
    name, only_port = entry.lower(), ""
    if bracketed := re.fullmatch(r"\[(.*)\](?::(\d+))?", name):
        name, only_port = bracketed[1], bracketed[2] or ""
    elif name.count(":") == 1:
        name, _, only_port = name.partition(":")
    if only_port and only_port != str(port):
        return False
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(name, strict=False)
    except ValueError:
        domain = name.removeprefix("*").strip(".")
        return name == "*" or (bool(domain) and f".{host.rstrip('.')}".endswith(f".{domain}"))


def _read_proxy(variable: str, value: str) -> httpx.Proxy:
    scheme, login, place = _PROXY.fullmatch(value).groups()  # type: ignore[union-attr]  # any text matches
    shown = value if login is None else f"{scheme or ''}…@{place}"  # a password is in no message
    said = f"{variable} names the proxy {shown!r}"
    try:
        if login is not None and re.search(r"[/?#]", login):
            raise ValueError("in a user name or password /, ? and # must be written as %2F, %3F and %23")
        proxy = httpx.Proxy(_read(value if "://" in value else f"http://{value}", _PROXY_SCHEMES))
    except ValueError as error:
        raise InvalidInput(
            f"{said}, which cannot be used: {error}", field=variable, value=shown, allowed="such as http://HOST:PORT"
        ) from None
    if proxy.url.scheme.startswith("socks") and find_spec("socksio") is None:
        raise InvalidInput(
            f"{said}, and SOCKS needs a package: pip install 'httpx[socks]', or except the server in NO_PROXY",
            field=variable,
            value=shown,
            allowed="with 'httpx[socks]' installed",
        )
    if proxy.url.scheme == "https":
        proxy.ssl_context = _trusted()
    return proxy


def _trusted() -> ssl.SSLContext:
    """Trusts the CAs of the system and of certifi; where the environment names others, those as OpenSSL has it."""
    file = os.environ.get("SSL_CERT_FILE")
    context = ssl.create_default_context()  # reads the variables, and says nothing of those that it cannot use
    if file:
        try:
            context.load_verify_locations(cafile=file)
        except OSError as error:  # ssl.SSLError is one
            reason = error.strerror or str(error)
            raise InvalidInput(
                f"SSL_CERT_FILE names {file!r}, which cannot be used: {reason}",
                field="SSL_CERT_FILE",
                value=file,
                allowed="a file with certificates in PEM form",
            ) from None
    elif not os.environ.get("SSL_CERT_DIR"):
        context.load_verify_locations(cafile=certifi.where())
    return context
