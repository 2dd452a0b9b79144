"""The environment's proxy and certificates, as the client, an agent and a download of data take them."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from forward_proxy import ForwardProxy, forward_proxy
from own_ca import OwnCa, own_ca
from rough_server import Rough, answer, rough_server

from edgefront import Client
from edgefront.agents.server.client import AgentClient
from edgefront.client.transport import Transport
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.http_client import server_url, stream
from edgefront.embedded.service import EmbeddedService
from servers import free_port

NAME = "edgefront.example"
"""A host that is not this machine; the proxy takes it for it."""
VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir", "sslkeylogfile")


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower() in VARIABLES:
            monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> OwnCa:
    return own_ca(tmp_path_factory.mktemp("ca"), [NAME, "localhost"])


@pytest.fixture(scope="module")
def plain() -> Iterator[Rough]:
    with rough_server() as server:
        server.answers = [answer(200, b"{}")]
        yield server


@pytest.fixture(scope="module")
def secure(ca: OwnCa) -> Iterator[Rough]:
    with rough_server(ca.server) as server:
        server.answers = [answer(200, b"{}")]
        yield server


@pytest.fixture
def proxy() -> Iterator[ForwardProxy]:
    with forward_proxy() as proxy:
        yield proxy


def by_client(url: str) -> None:
    transport = Transport(url, None, timeout_s=20, patience_s=0)
    try:
        transport.request("GET", "/v1/health")
    finally:
        transport.close()


def by_agent(url: str) -> None:
    async def ask() -> None:
        async with AgentClient(url, insecure=True) as client:
            await client.release("lease", ())

    asyncio.run(ask())


def by_download(url: str) -> None:
    with stream(f"{url}/data", headers={}, timeout_s=20) as response:
        response.read()


ALL = pytest.mark.parametrize("ask", [by_client, by_agent, by_download])
Ask = Callable[[str], None]


def named(rough: Rough) -> str:
    """The URL of the server with a host that only the proxy knows."""
    return rough.url.replace("127.0.0.1", NAME)


@ALL
@pytest.mark.parametrize("variable", ["HTTP_PROXY", "all_proxy"])
def test_a_server_elsewhere_is_reached_through_the_proxy(
    ask: Ask, variable: str, plain: Rough, proxy: ForwardProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, proxy.url if variable.isupper() else proxy.url.removeprefix("http://"))
    ask(named(plain))
    assert [host for _, host in proxy.asked] == [named(plain).removeprefix("http://")]


@ALL
def test_tls_goes_through_the_proxy_with_a_ca_of_ones_own(
    ask: Ask, secure: Rough, ca: OwnCa, proxy: ForwardProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.password = "s3cret"
    monkeypatch.setenv("HTTPS_PROXY", proxy.url.replace("//", "//user:s3cret@"))
    monkeypatch.setenv("SSL_CERT_FILE", str(ca.certificate))
    ask(named(secure))
    assert proxy.asked == [("CONNECT", named(secure).removeprefix("https://"))]


@ALL
@pytest.mark.parametrize("value", ["http://127.0.0.1:9", "socks5://127.0.0.1:9", "foo://", "http://[", ""])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_this_machine_is_never_reached_through_a_proxy(
    ask: Ask, value: str, host: str, plain: Rough, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, value)
    ask(plain.url.replace("127.0.0.1", host))


@ALL
@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("foo://proxy.example", "it does not begin with http:// or https:// or socks5://"),
        ("http://", "it has no host"),
        ("http://user:s3cret@proxy.example:port", "port"),
        ("user:an@s3cret@proxy.example:99999", "99999 is no port"),
        ("socks5://proxy.example:1080", "httpx[socks]"),
    ],
)
@pytest.mark.parametrize("variable", ["http_proxy", "ALL_PROXY"])
def test_a_proxy_that_cannot_be_used_is_one_sentence(
    ask: Ask, variable: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidInput, match=variable.upper()) as caught:
        ask(f"http://{NAME}:8090")
    assert said in caught.value.detail
    assert caught.value.field == variable.upper()
    assert "s3cret" not in str(caught.value.extra) + caught.value.detail


@ALL
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_ca_of_ones_own_is_trusted_where_the_environment_names_it(
    ask: Ask, host: str, secure: Rough, ca: OwnCa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = secure.url.replace("127.0.0.1", host)
    with pytest.raises(Exception, match="CERTIFICATE_VERIFY_FAILED") as caught:
        ask(url)
    assert ask is by_download or "SSL_CERT_FILE" in str(caught.value)
    with monkeypatch.context() as patched:
        patched.setenv("SSL_CERT_FILE", str(ca.certificate))
        ask(url)
    (tmp_path / "ca.pem").write_bytes(ca.certificate.read_bytes())
    monkeypatch.setenv("SSL_CERT_DIR", f"{tmp_path}{os.pathsep}")
    digest = subprocess.run(
        ["openssl", "x509", "-hash", "-noout", "-in", tmp_path / "ca.pem"], capture_output=True, text=True, check=True
    ).stdout.strip()
    (tmp_path / f"{digest}.0").symlink_to("ca.pem")
    ask(url)


@ALL
def test_certificates_that_are_not_there_are_one_sentence(
    ask: Ask, secure: Rough, plain: Rough, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty.pem").touch()
    for path in (tmp_path / "no" / "where", tmp_path / "empty.pem", tmp_path):
        monkeypatch.setenv("SSL_CERT_FILE", str(path))
        with pytest.raises(InvalidInput, match=r"SSL_CERT_FILE names .*, which cannot be used") as caught:
            ask(secure.url)
        assert caught.value.field == "SSL_CERT_FILE"
    if ask is not by_download:  # which may be led to where it needs them
        ask(plain.url)


def test_redirects_of_downloads_are_followed(
    plain: Rough, proxy: ForwardProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    with rough_server() as first:
        first.answers = [answer(302, Location=f"{plain.url}/there")]
        with stream(f"{named(first)}/here", headers={}, timeout_s=20) as response:
            assert response.read() == b"{}"
        assert proxy.asked[0] == ("GET", named(first).removeprefix("http://"))
        first.answers = [answer(302, Location="/again")]
        with pytest.raises(Exception, match="redirects"), stream(first.url, headers={}, timeout_s=20):
            pass


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999", "http://[::1", "https://h/?x=1", "h:80", "http://\0"])
def test_urls_that_no_server_has_are_refused_alike(url: str) -> None:
    for ask in (by_client, by_agent):
        with pytest.raises(InvalidInput, match="not the URL of a server"):
            ask(url)


def test_a_url_may_have_a_path(plain: Rough) -> None:
    assert server_url(f"{plain.url}/edgefront/") == f"{plain.url}/edgefront"
    for ask in (by_client, by_agent):
        ask(f"{plain.url}/edgefront/")
    assert [path for _, path, _ in plain.seen[-2:]] == [
        "/edgefront/v1/health",
        "/edgefront/v1/leases/lease/release",
    ]


def test_a_service_with_a_certificate_is_reached_by_its_name(
    ca: OwnCa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"https://localhost:{free_port()}"
    monkeypatch.setenv("SSL_CERT_FILE", str(ca.certificate))
    monkeypatch.setenv("EDGEFRONT_HTTP__CERTIFICATE", str(ca.chain))
    monkeypatch.setenv("EDGEFRONT_HTTP__CERTIFICATE_KEY", str(ca.chain))
    monkeypatch.setenv("EDGEFRONT_HTTP__URL", f"{url}/")
    monkeypatch.setenv("EDGEFRONT_HTTP__PORT", url.rpartition(":")[2])
    with EmbeddedService(tmp_path, agent=False, isolated=True) as service, Client(home=tmp_path) as client:
        assert service.url == client.url == url
        assert list(client.jobs.list()) == []


ROOT = Path(__file__).parents[2]


def test_every_connection_is_made_with_these_options() -> None:
    for folder in ("core", "agents", "edgefront", "workers", "api"):
        for path in (ROOT / folder).rglob("*.py"):
            if "httpx." not in (text := path.read_text()):
                continue
            assert not re.search(r"httpx\.(get|post|put|patch|delete|request|stream)\(", text), path
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in ("httpx.Client", "httpx.AsyncClient"):
                    assert any(word.arg is None and "options" in ast.unparse(word.value) for word in node.keywords), (
                        path
                    )
