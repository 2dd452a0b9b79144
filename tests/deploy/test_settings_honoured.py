"""Each documented setting holds in every command that takes it, and one that cannot be used is named."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import pytest
from annotated_types import Ge, Gt
from pydantic.fields import FieldInfo
from setting_fields import fields
from typer.testing import CliRunner

from edgefront.cli import main as cli
from edgefront.core.common.errors import Conflict, InvalidInput
from edgefront.core.services.settings import Settings
from edgefront.embedded.service import EmbeddedService
from servers import free_port

OF_THE_SERVICE = {"EDGEFRONT_BROKER__URL"}
"""The embedded service has its own."""
OF_THE_DEMO = OF_THE_SERVICE | {"EDGEFRONT_ARTIFACTS", "EDGEFRONT_DATABASE__URL", "EDGEFRONT_DATABASE__POOL_SIZE"}
GIVEN = {
    "EDGEFRONT_ARTIFACTS": "elsewhere",
    "EDGEFRONT_HTTP__HOST": "127.0.0.2",
    "EDGEFRONT_HTTP__URL": "https://edgefront.example",
    "EDGEFRONT_BROKER__URL": "redis://elsewhere",
    "EDGEFRONT_HTTP__TRUSTED_PROXIES": "10.0.0.0/8, ::1",
    "EDGEFRONT_LEASES__TTL_S": "23",
    "EDGEFRONT_TRAINING__TTL_S": "23",
    "EDGEFRONT_TRAINING__COMMAND": '["train"]',
}
TOGETHER = {"EDGEFRONT_HTTP__CERTIFICATE": "a.pem", "EDGEFRONT_HTTP__CERTIFICATE_KEY": "b.pem"}
ELSEWHERE = {"EDGEFRONT_HOME", "EDGEFRONT_HTTP__SHARE_PORT", "EDGEFRONT_HTTP__USER_HEADER"}
"""`--home` is given to the service below; a shared port is refused, and so is a header without trusted proxies."""


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("EDGEFRONT_"):
            monkeypatch.delenv(name)


def another(field: FieldInfo) -> str:
    """A value that is not the default, as a variable holds it."""
    annotation: Any = field.annotation
    if get_origin(annotation) in (Union, type(int | None)):
        (annotation,) = (part for part in get_args(annotation) if part is not type(None))
    if get_origin(annotation) is Literal:
        return str(next(value for value in get_args(annotation) if value != field.default))
    if annotation is bool:
        return str(not field.default).lower()
    if annotation in (int, float):
        least = max([bound.ge for bound in field.metadata if isinstance(bound, Ge)], default=0)
        above = max([bound.gt for bound in field.metadata if isinstance(bound, Gt)], default=0)
        return str(max(int(least), int(above)) + 3)
    return "given"


def value_of(settings: Settings, variable: str) -> Any:
    value: Any = settings
    for part in variable.removeprefix("EDGEFRONT_").lower().split("__"):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize(("isolated", "own"), [(False, OF_THE_SERVICE), (True, OF_THE_DEMO)])
def test_the_embedded_service_takes_every_setting(
    isolated: bool, own: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = {}
    for variable, field in fields().items():
        if variable in ELSEWHERE:
            continue
        with monkeypatch.context() as patched:
            text = (GIVEN | TOGETHER).get(variable) or another(field)
            for name, value in (TOGETHER if variable in TOGETHER else {variable: text}).items():
                patched.setenv(name, value)
            expected = value_of(Settings(), variable)
            assert expected != field.default
            taken[variable] = value_of(EmbeddedService(tmp_path, isolated=isolated)._settings(), variable) == expected
    assert {variable for variable, holds in taken.items() if not holds} == own


def test_host_and_port_are_those_of_the_settings_unless_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv("EDGEFRONT_HTTP__HOST", "127.0.0.2")
    monkeypatch.setenv("EDGEFRONT_HTTP__PORT", str(port))
    with EmbeddedService(tmp_path / "home", agent=False) as service:
        assert service.url == f"http://127.0.0.2:{port}"
        with (
            pytest.raises(Conflict, match=f"port {port} .* is in use: .*EDGEFRONT_HTTP__PORT"),
            EmbeddedService(tmp_path / "other", agent=False),
        ):
            pass
    monkeypatch.setenv("EDGEFRONT_HTTP", json.dumps({"port": 1}))  # of the two the single one holds
    with EmbeddedService(tmp_path / "home", host="127.0.0.1", port=0, agent=False) as service:
        assert service.url.startswith("http://127.0.0.1:")
        assert service.url != f"http://127.0.0.1:{port}"


def test_up_leaves_host_and_port_to_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEFRONT_HTTP__HOST", "192.0.2.7")
    done = CliRunner().invoke(cli.app, ["up", "--no-agent", "--home", str(tmp_path)])
    assert isinstance(done.exception, InvalidInput)
    assert done.exception.detail.startswith("http.host 192.0.2.7 can be reached from other machines")


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("EDGEFRONT_HTTP__PORT", "abc", "EDGEFRONT_HTTP__PORT: must be an integer, not 'abc'"),
        ("EDGEFRONT_HTTP__PORT", "65536", "EDGEFRONT_HTTP__PORT: must be less than or equal to 65535, not '65536'"),
        ("EDGEFRONT_HTTP", '{"port": "x"}', "EDGEFRONT_HTTP__PORT: must be an integer, not 'x'"),
        ("EDGEFRONT_HTTP", "{", "EDGEFRONT_HTTP is not JSON"),
        ("EDGEFRONT_HTTP", "[]", "EDGEFRONT_HTTP: must be"),
        ("EDGEFRONT_HTTP__PROT", "1", "EDGEFRONT_HTTP__PROT: there is no such field; do you mean port?"),
        ("EDGEFRONT_HTPT__PORT", "1", "EDGEFRONT_HTPT__PORT is not a setting; the nearest are EDGEFRONT_HTTP__PORT"),
        ("EDGEFRONT_DATABASE_URL", "x", "EDGEFRONT_DATABASE_URL is not a setting; the nearest are EDGEFRONT_DATABASE_"),
        ("EDGEFRONT_ARTIFACT", "x", "EDGEFRONT_ARTIFACT is not a setting; the nearest are EDGEFRONT_ARTIFACTS"),
        ("EDGEFRONT_LEASES__TTL_S", "9", "EDGEFRONT_LEASES__TTL_S is 9: a lease must outlast EDGEFRONT_LEASES__HEART"),
        ("EDGEFRONT_TRAINING__POLL_S", "60", "EDGEFRONT_TRAINING__TTL_S is 60: a lease must outlast EDGEFRONT_TRAIN"),
        ("EDGEFRONT_HTTP__TRUSTED_PROXIES", "127.0.0.300", "EDGEFRONT_HTTP__TRUSTED_PROXIES: '127.0.0.300' does not"),
        ("EDGEFRONT_TRAINING__DEVICE", "tpu", "EDGEFRONT_TRAINING__DEVICE: must be 'cpu' or 'cuda', not 'tpu'"),
        ("EDGEFRONT_TRAINING__COMMAND", "abc", "EDGEFRONT_TRAINING__COMMAND: must be a list"),
        ("edgefront_leases__ttl_s", "-1", "EDGEFRONT_LEASES__TTL_S: must be greater than 0"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(
    variable: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidInput) as refused:
        Settings()
    assert refused.value.detail.startswith(said)
    assert refused.value.field.startswith(said.partition(" ")[0].rstrip(":"))


def test_a_secret_may_be_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "url").write_text("postgresql://ada:secret@db.example/edgefront\n")
    monkeypatch.setenv("EDGEFRONT_DATABASE__URL_FILE", str(tmp_path / "url"))
    monkeypatch.setenv("EDGEFRONT_DATABASE__URL", "")  # so that what the file sets ends with the test
    monkeypatch.delenv("EDGEFRONT_DATABASE__URL")
    assert Settings().database.url == "postgresql://ada:secret@db.example/edgefront"
    monkeypatch.setenv("EDGEFRONT_BROKER__URL_FILE", str(tmp_path / "missing"))
    with pytest.raises(InvalidInput, match=r"EDGEFRONT_BROKER__URL_FILE: .*missing cannot be read: No such file"):
        Settings()


def test_variables_of_others_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client, the proxy, and what Kubernetes sets for a service named `edgefront`."""
    for name, value in (
        ("EDGEFRONT_URL", "https://edgefront.example"),
        ("EDGEFRONT_PROXY_BODY_MIB", "5"),
        ("EDGEFRONT_PORT", "tcp://10.0.0.1:8090"),
        ("EDGEFRONT_PORT_8090_TCP_ADDR", "10.0.0.1"),
        ("EDGEFRONT_API_SERVICE_HOST", "10.0.0.1"),
        ("EDGEFRONT_API_PORT", "tcp://10.0.0.1:8090"),
    ):
        monkeypatch.setenv(name, value)
    Settings()


def test_commands_look_for_data_where_trainings_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "poem.txt").write_text("so much depends upon\n" * 50)
    monkeypatch.setenv("EDGEFRONT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("EDGEFRONT_TRAINING__DATA", str(tmp_path / "shared"))
    done = CliRunner().invoke(cli.app, ["data", "prepare", str(tmp_path / "poem.txt"), "--level", "bytes", "--json"])
    assert done.exception is None, done.output
    assert Path(json.loads(done.stdout)["folder"]).parent == tmp_path / "shared" == Settings().data_folder
