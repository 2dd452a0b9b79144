"""The proxy of docker-compose.yml: its configuration as the real nginx reads it, and whom it believes about clients."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import yaml
from own_ca import own_ca

import servers
from edgefront.api.routers.events import HEARTBEAT_S
from edgefront.api.serve import KEEP_ALIVE_S
from edgefront.core.services.settings import HttpSettings, LeaseSettings
from http_server import QuietHandler, serving

ROOT = Path(__file__).parents[2]
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
NGINX_KEEPS_S = 60
"""How long nginx keeps an idle connection to the API, unless it is told."""
FORWARDED = {
    "X-Forwarded-For": "192.0.2.1, 192.0.2.2",
    "X-Forwarded-Proto": "https",
    "Forwarded": "for=192.0.2.3",
    "X-Real-IP": "192.0.2.4",
    "X-Forwarded-Email": "ada@example.org",
    "X-Auth-Request-User": "ada",
    "Remote-User": "ada",
}
SAID = ("x-forwarded-for", "x-forwarded-proto")


class Headers(QuietHandler):
    """Answers with the headers of the request."""

    def do_GET(self) -> None:  # noqa: N802
        content = json.dumps({name.lower(): value for name, value in self.headers.items()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture(scope="module")
def api() -> Iterator[str]:
    """`host:port` of what stands for the API."""
    with serving(Headers) as url:
        yield urlsplit(url).netloc


def said(client: httpx.Client, url: str) -> list[str | None]:
    """What reaches the API of who asks, where a client says that it is somebody else."""
    headers = client.get(url, headers=FORWARDED).json()
    assert headers["host"] == urlsplit(url).netloc
    assert not {"x-forwarded-email", "x-auth-request-user", "remote-user"} & headers.keys()
    return [headers.get(name) for name in SAID]


def test_what_a_client_says_of_itself_is_dropped(api: str) -> None:
    from_elsewhere = httpx.HTTPTransport(local_address="127.0.0.9")
    with servers.own_nginx(api) as proxy, httpx.Client(transport=from_elsewhere, trust_env=False) as client:
        assert said(client, f"{proxy.url}/") == ["127.0.0.9", "http"]


def test_behind_another_proxy_it_is_that_proxy_who_says(api: str) -> None:
    """The address that this one has appended, not what its client has sent before."""
    with servers.own_nginx(api) as proxy, httpx.Client(trust_env=False) as client:
        assert said(client, f"{proxy.url_behind}/") == ["192.0.2.2", "https"]


def test_where_the_ordinary_port_is_named_for_it_nobody_is_believed(api: str) -> None:
    """As with EDGEFRONT_PROXY_PORT=8090, its default, written out."""
    both = f"127.0.0.1:{servers.free_port()}"
    with servers.own_nginx(api, LISTEN=both, LISTEN_BEHIND=both) as proxy, httpx.Client(trust_env=False) as client:
        assert said(client, f"{proxy.url}/") == ["127.0.0.1", "http"]


def test_https_is_served_with_the_certificate(api: str, tmp_path: Path) -> None:
    """With one of our own: the module that obtains one is only in the image."""
    authority = own_ca(tmp_path, ["edgefront.example"])
    with closing(servers.OwnNginx(api, "https")) as proxy:
        module, server = (proxy.folder / "https" / name for name in ("module.conf", "server.conf"))
        module.unlink()
        text = re.sub(r"acme_issuer \w+ \{.*?\}|acme_certificate \w+;", "", server.read_text(), flags=re.DOTALL)
        server.write_text(re.sub(r"\$acme_certificate(_key)?", str(authority.chain), text))
        proxy.start()
        trusting = ssl.create_default_context(cafile=str(authority.certificate))
        with httpx.Client(verify=trusting, trust_env=False) as client:
            assert said(client, f"{proxy.url_https}/") == ["127.0.0.1", "https"]
            moved = client.get(f"{proxy.url_http}/jobs?x=1")
    assert (moved.status_code, moved.headers["location"]) == (301, "https://127.0.0.1/jobs?x=1")


def test_a_certificate_is_obtained_for_the_host_that_is_named(api: str) -> None:
    with closing(servers.OwnNginx(api, "https")) as proxy:
        assert (
            "load_module /etc/nginx/modules/ngx_http_acme_module.so;"
            in (proxy.folder / "https/module.conf").read_text()
        )
        server = (proxy.folder / "https/server.conf").read_text()
    assert server.count("server_name localhost;") == 2  # unless EDGEFRONT_DOMAIN is set
    # Its certificates outlive the container.
    (state,) = re.findall(r"state_path (.*);", server)
    assert f"certificates:{state}" in SERVICES["https"]["volumes"]
    (release,) = re.findall(r"^nginx:1\.(\d+)$", SERVICES["https"]["image"])
    assert int(release) >= 30  # the first stable one with the module


def test_every_value_is_given(api: str) -> None:
    """What nginx would take for a variable of its own stays in no file."""
    with closing(servers.OwnNginx(api, "https")) as proxy:
        for path in proxy.folder.rglob("*.conf"):
            assert "${EDGEFRONT_" not in path.read_text()


def test_the_proxy_waits_longer_and_takes_more_than_the_api() -> None:
    text = (ROOT / "deploy" / "nginx" / "nginx.conf.template").read_text()

    def number(name: str) -> int:
        (value,) = re.findall(rf"^ *{name} (\d+)s;", text, re.MULTILINE)
        return int(value)

    given = SERVICES["proxy"]["environment"]
    default = {name: int(found[1]) for name, text in given.items() if (found := re.search(r":-(\d+)\}$", text))}
    http = HttpSettings()
    assert number("proxy_read_timeout") > max(LeaseSettings().max_wait_s, HEARTBEAT_S)
    assert default["EDGEFRONT_PROXY_BODY_MIB"] << 20 > http.max_body_bytes
    assert default["EDGEFRONT_PROXY_REQUESTS"] < http.connections
    assert NGINX_KEEPS_S < KEEP_ALIVE_S
