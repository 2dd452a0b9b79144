"""HTTP connections with the proxies and certificates that environment variables name, and pauses between retries.

httpx reads curl's variables `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, or the system's settings. An error
message names the variable whose value is unusable. Requests to this machine use no proxy.
"""

from __future__ import annotations

import os
import ssl
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import certifi
import httpx
from tenacity import RetryCallState, wait_random_exponential

from edgefront.core.common.addresses import is_own
from edgefront.core.common.errors import EdgefrontError, InvalidInput, Unavailable

_MAX_RETRY_AFTER_S = 3600.0
_PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")


def failure(error: Exception) -> str:
    """Describes why a request failed, and names the environment variable that may help."""
    reason = str(error) or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in reason and "mismatch" not in reason:
        return f"{reason}; to trust a CA of your own, set SSL_CERT_FILE to the file with its certificate"
    return reason


@contextmanager
def asking(server: str) -> Iterator[None]:
    """Context manager: converts httpx's request errors (no connection, a truncated response, …) into `Unavailable`."""
    try:
        yield
    except httpx.RequestError as error:
        raise Unavailable(f"{server} cannot be reached: {failure(error)}") from error


def server_url(text: str, *, field: str = "url") -> str:
    """Returns a server's URL without a trailing slash; paths are allowed. Raises `InvalidInput` for an invalid URL."""
    try:
        url = _read(text)
        if url.query or url.fragment:
            raise ValueError("it has a query or a fragment")
    except ValueError as error:
        raise InvalidInput(
            f"{text!r} is not the URL of a server: {error}",
            field=field,
            value=text,
            allowed="such as http://127.0.0.1:8090 or https://edgefront.example.org",
        ) from None
    return text.rstrip("/")


def valid_url(text: str) -> httpx.URL:
    """Parses the URL of a resource. Raises `InvalidInput` if the URL is invalid."""
    try:
        return _read(text)
    except ValueError as error:
        raise InvalidInput(f"{text} is not a valid URL: {error}", field="url", value=text) from None


def _read(text: str, schemes: Sequence[str] = ("http", "https")) -> httpx.URL:
    """Parses a URL. Raises ValueError if the URL is invalid or has none of these schemes."""
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


def client_options(url: str, *, follow_redirects: bool = False) -> dict[str, Any]:
    """Arguments of `httpx.Client` and `httpx.AsyncClient` for a server. Raises `InvalidInput` if an environment
    variable names an unusable proxy or certificate file.
    """
    address = valid_url(url)
    is_direct = is_own(address.host)
    if not is_direct:
        _check_proxies()
    # Loading certificates takes longer than a request, so plain HTTP loads none.
    encrypted = follow_redirects or address.scheme == "https"
    verify = _trusted() if encrypted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return {"verify": verify, "trust_env": not is_direct, "follow_redirects": follow_redirects}


@contextmanager
def stream(url: str, *, headers: Mapping[str, str], timeout_s: float) -> Iterator[httpx.Response]:
    """Sends a GET request, follows redirects and yields the streamed response."""
    with (
        httpx.Client(**client_options(url, follow_redirects=True), timeout=timeout_s) as client,
        client.stream("GET", url, headers=dict(headers)) as response,
    ):
        yield response


def pauses(base_s: float, cap_s: float) -> Callable[[RetryCallState], float]:
    """A `wait` function for tenacity: exponential back-off with full jitter.

    The n-th pause is uniform between 0 and min(cap, base·2ⁿ) seconds, but at least the error's `retry_after_s`.
    """
    jitter = wait_random_exponential(multiplier=base_s, max=cap_s)

    def pause(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked = error.extra.get("retry_after_s") if isinstance(error, EdgefrontError) else None
        return max(jitter(state), asked) if isinstance(asked, (int, float)) else jitter(state)

    return pause


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds of the Retry-After header, at most an hour. None if the header is missing or a date."""
    try:
        return min(_MAX_RETRY_AFTER_S, max(0.0, float(headers["retry-after"])))
    except (KeyError, ValueError):
        return None


def problem_document(response: httpx.Response) -> dict[str, Any] | None:
    """The problem document (RFC 9457) of an error response; None for any other body, such as a proxy's error page."""
    try:
        document = response.json()
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) and "detail" in document else None


def _check_proxies() -> None:
    for kind, value in urllib.request.getproxies().items():
        try:
            if kind in ("http", "https", "all"):
                proxy = _read(value if "://" in value else f"http://{value}", _PROXY_SCHEMES)
                if proxy.scheme.startswith("socks") and find_spec("socksio") is None:
                    raise ValueError("SOCKS needs a package: pip install 'httpx[socks]'")
        except ValueError as error:  # the value is not shown: it may hold a password
            variable = f"{kind}_proxy".upper()
            raise InvalidInput(
                f"{variable} names a proxy that cannot be used: {error}",
                field=variable,
                allowed="such as http://HOST:PORT",
            ) from None


def _trusted() -> ssl.SSLContext:
    """TLS context that trusts the CAs of the system and of certifi, or of `SSL_CERT_FILE` or `SSL_CERT_DIR` if set."""
    file = os.environ.get("SSL_CERT_FILE")
    context = ssl.create_default_context()  # silently ignores unusable variables
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
