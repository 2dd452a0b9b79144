"""The compose file and the Dockerfile name commands, options, settings and stages that exist."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
import subprocess
import sys
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgefront.core.services.dispatch import training_queue
from edgefront.core.services.settings import BrokerSettings, Settings
from edgefront.core.services.tasks import TRAIN_QUEUES
from edgefront.workers import app as workers
from http_server import QuietHandler, serving

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
DOCKERFILE = (ROOT / "Dockerfile").read_text()
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
STAGES = re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, re.MULTILINE)
OURS = {name: service for name, service in SERVICES.items() if "build" in service}
IMAGES = runpy.run_path(str(ROOT / "benchmarks" / "images.py"))
OWNED = re.search(r"install --directory --owner=edgefront --group=edgefront --mode=0700 (.+)", DOCKERFILE)


def mounts(service: dict[str, Any]) -> dict[str, str]:
    """Path in the container → what is mounted there."""
    mounted = [volume.split(":")[:2] for volume in service.get("volumes", [])]
    return {path: source for source, path in mounted} | dict.fromkeys(service.get("tmpfs", []), "tmpfs")


def test_the_services_of_a_team_s_server_are_there() -> None:
    assert set(SERVICES) == {"postgres", "redis", "migrate", "api", "proxy", "https", "worker", "trainer", "agent"}


def test_make_images_builds_and_checks_all_of_it() -> None:
    last = [stage for stage in STAGES if f"FROM base AS {stage}\n" in DOCKERFILE and stage != "source"]
    assert sorted(IMAGES["TARGETS"]) == sorted(last)
    ending = {"migrate"}
    assert set(IMAGES["SERVICES"]) == {name for name, service in SERVICES.items() if "profiles" not in service} - ending


def test_targets_are_stages() -> None:
    for service in OURS.values():
        assert re.sub(r"\$\{\w+:-(\w+)\}", r"\1", service["build"]["target"]) in STAGES
        # Another target is another image, so that an image of before is not taken for it.
        assert service["image"] == f"edgefront-{service['build']['target']}"


def test_stages_copy_from_stages_and_from_files_that_exist() -> None:
    for source in re.findall(r"COPY --from=(\S+)", DOCKERFILE):
        assert source in STAGES
    ignored = (ROOT / ".dockerignore").read_text()
    for line in re.findall(r"^COPY (?!--)(.+)$", DOCKERFILE, re.MULTILINE):
        for name in shlex.split(line)[:-1]:
            assert (ROOT / name).exists()
            assert f"!{name}\n" in ignored


def test_final_images_do_not_run_as_root() -> None:
    for stage in IMAGES["TARGETS"]:
        body = re.search(rf"^FROM \S+ AS {stage}\n(.*?)(?=^FROM|\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL)
        assert body is not None
        assert "USER edgefront" in body[1]


def test_only_what_opens_low_ports_starts_as_root() -> None:
    users = {name: service.get("user", "edgefront" if name in OURS else "root") for name, service in SERVICES.items()}
    assert [name for name, user in users.items() if user == "root"] == ["https"]
    for name, service in SERVICES.items():
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert ("cap_add" in service) == (name == "https")


def test_our_user_owns_what_is_mounted() -> None:
    """An engine gives a new volume the owner of the folder in the image; what the image lacks belongs to root."""
    assert OWNED is not None
    for service in OURS.values():
        assert mounts(service).keys() <= set(OWNED[1].split())


def test_no_volume_without_a_name_is_left_behind() -> None:
    """Each `VOLUME` of an image becomes one at each `up`, unless something is mounted there."""
    volumes = {"postgres": "/var/lib/postgresql/data", "redis": "/data"} | dict.fromkeys(OURS, "/data")
    assert DOCKERFILE.count("VOLUME") == DOCKERFILE.count("VOLUME /data\n")
    for name, path in volumes.items():
        assert path in mounts(SERVICES[name])


def test_where_clients_are_believed_only_the_container_reaches_unless_it_is_published() -> None:
    proxy = SERVICES["proxy"]
    assert proxy["environment"]["EDGEFRONT_PROXY_LISTEN_BEHIND"] == "${EDGEFRONT_PROXY_PORT:-127.0.0.1:8091}"
    assert proxy["ports"][0].endswith(f":${{EDGEFRONT_PROXY_PORT:-{proxy['environment']['EDGEFRONT_PROXY_LISTEN']}}}")


def test_the_admin_key_is_in_no_other_container() -> None:
    assert {name for name, service in SERVICES.items() if "setup" in mounts(service).values()} == {"migrate"}
    migrate, agent = SERVICES["migrate"], SERVICES["agent"]
    assert migrate["command"][3:] == ["/setup", "--token-folder", "/enrolment"]
    assert mounts(migrate)["/enrolment"] == mounts(agent)["/enrolment"]
    assert "--token-file=/enrolment/enrolment-token" in agent["command"]


def test_what_is_waited_for_has_a_health_check() -> None:
    """In the compose file: Podman builds images of the OCI format, which has none."""
    assert "HEALTHCHECK" not in DOCKERFILE
    for service in SERVICES.values():
        # Podman, asked by Docker Compose, splits arguments at spaces.
        assert not any(" " in argument for argument in service.get("healthcheck", {}).get("test", []))
        needed = service.get("depends_on", {})
        for name in needed:
            healthy = isinstance(needed, dict) and needed[name]["condition"] == "service_healthy"
            assert ("healthcheck" in SERVICES[name]) >= healthy


def test_a_postgres_that_only_creates_its_database_is_not_healthy() -> None:
    """Its image does so with a server that has no port, and ends it: what would start then finds none."""
    check = SERVICES["postgres"]["healthcheck"]["test"]
    assert check[check.index("--host") + 1] == "127.0.0.1"


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_api_s_health_check_fails_when_it_is_not_ready(status: int, code: int) -> None:
    class Api(QuietHandler):
        def do_GET(self) -> None:  # noqa: N802
            self.send_response(status if self.path == "/v1/ready" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

    kind, program, *arguments = SERVICES["api"]["healthcheck"]["test"]
    assert (kind, program) == ("CMD", "python")
    own = f"http://127.0.0.1:{SERVICES['api']['environment']['EDGEFRONT_HTTP__PORT']}"
    with serving(Api) as url:
        command = [sys.executable, *(argument.replace(own, url) for argument in arguments)]
        assert own in " ".join(arguments)
        assert subprocess.run(command, capture_output=True, check=False).returncode == code


def test_extras_exist() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    for extras in re.findall(r"'\.\[([\w,-]+)\]'", DOCKERFILE):
        for extra in extras.split(","):
            assert re.search(rf"^{extra} = \[", project, re.MULTILINE)


def test_environment_is_read_by_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = dict(SERVICES["trainer"]["environment"])  # those of the API, and its own
    assert SERVICES["api"]["environment"].items() <= environment.items()
    for name, value in environment.items():
        if value is not None:  # else whoever starts it may set it
            monkeypatch.setenv(name, re.sub(r"\$\{[^}]*\}", "secret", value))
    settings = Settings()
    assert settings.database_url == "postgresql+psycopg://edgefront:secret@postgres:5432/edgefront"
    assert settings.broker.url == "redis://redis:6379/0"
    assert (settings.http.host, settings.http.port, settings.http.insecure) == ("0.0.0.0", 8090, True)
    assert not settings.embedded
    for name in environment:  # no setting is misspelt: each changes the value that it names
        value: Any = Settings
        for part in name.removeprefix("EDGEFRONT_").lower().split("__"):
            assert part in value.model_fields
            value = value.model_fields[part].annotation


@pytest.mark.parametrize("module", ["edgefront.api", "edgefront.api.setup"])
def test_modules_that_images_run_exist(module: str) -> None:
    assert f'"-m", "{module}"' in DOCKERFILE + (ROOT / "docker-compose.yml").read_text()
    main = module if module.endswith(".setup") else f"{module}.__main__"
    code = f"import importlib.util as u; assert u.find_spec({main!r})"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_agent_options_exist() -> None:
    given = [option.split("=")[0] for option in SERVICES["agent"]["command"]]
    given += re.findall(r'"(--[\w-]+)"', DOCKERFILE.split("AS agent\n")[1])
    shown = subprocess.run(
        [sys.executable, "-m", "edgefront", "agent", "--help"], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout
    for option in given:
        assert f"{option} " in shown


def test_worker_options_exist() -> None:
    command = SERVICES["worker"]["command"]
    assert command[:3] == SERVICES["trainer"]["command"][:3] == ["celery", "--app=edgefront.workers.app", "worker"]
    shown = subprocess.run(
        [sys.executable, "-m", "celery", "worker", "--help"], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout
    for option in command[3:] + SERVICES["trainer"]["command"][3:]:
        assert option.split("=")[0] in shown


def test_the_trainer_serves_a_queue_that_there_is_in_the_api_s_folder() -> None:
    trainer = SERVICES["trainer"]
    (given,) = (option for option in trainer["command"] if option.startswith("--queues="))
    settings = Settings(broker=BrokerSettings(url="redis://redis:6379/0"))
    assert given.rpartition(":-")[2].removesuffix("}") in [training_queue(settings, queue) for queue in TRAIN_QUEUES]
    assert trainer["volumes"] == SERVICES["api"]["volumes"]


def test_the_api_is_reached_through_a_proxy_only() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert set(published) == {"proxy", "https"}
    assert [port.split(":")[0] for port in published["proxy"]] == ["127.0.0.1"]
    # Whom the API believes about clients: all that share its network are services of this file and take no orders.
    assert {name for name, service in SERVICES.items() if "devices" in service.get("networks", [])} == {
        "proxy",
        "https",
        "agent",
    }
    assert SERVICES["agent"]["networks"] == ["devices"]
    assert COMPOSE["networks"] == {"default": None, "devices": {"internal": True}}
    trusted = SERVICES["api"]["environment"]["EDGEFRONT_HTTP__TRUSTED_PROXIES"]
    assert all(ip_network(network).is_private for network in trusted.split(","))


def test_files_that_are_mounted_exist() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (ROOT / source).exists()


def test_no_file_names_a_package_index() -> None:
    for text in (DOCKERFILE, (ROOT / "docker-compose.yml").read_text()):
        assert not re.search(r"https?://(?!127\.0\.0\.1|proxy:)", text)
        assert "index-url" not in text
    assert "syntax=" not in DOCKERFILE  # would be fetched from a registry, for what engines know anyway


def test_services_bound_their_logs_and_processes_and_say_whether_they_are_well() -> None:
    for name, service in SERVICES.items():
        assert service["logging"]["options"].keys() == {"max-size", "max-file"}
        assert service["pids_limit"]
        assert ("mem_limit" in service) == (name not in ("agent", "migrate"))
        assert ("healthcheck" in service) == (name not in ("agent", "migrate"))


def test_a_worker_says_that_it_is_well_where_its_health_check_looks() -> None:
    assert f"getmtime('{workers.ALIVE}')" in str(SERVICES["worker"]["healthcheck"]["test"])


def test_servers_of_one_s_own_replace_those_of_the_file() -> None:
    class Loader(yaml.SafeLoader):
        pass

    for tag in ("!reset", "!override"):
        Loader.add_constructor(
            tag,
            lambda loader, node: (
                loader.construct_mapping(node, deep=True) if isinstance(node, yaml.MappingNode) else None
            ),
        )
    own = yaml.load((ROOT / "deploy" / "external.yml").read_text(), Loader)
    assert {name for name, service in own["services"].items() if service is None} == {"postgres", "redis"}
    for name in ("migrate", "api", "worker", "trainer"):
        service = own["services"][name]
        assert not {"postgres", "redis"} & (service["depends_on"] or {}).keys()
        files = {value for key, value in service["environment"].items() if key.endswith("_FILE")}
        assert files == {f"/run/secrets/{secret}" for secret in service["secrets"]}
        assert set(service["secrets"]) <= own["secrets"].keys()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze checks units of systemd")
def test_the_units_of_systemd_are_valid(tmp_path: Path) -> None:
    units = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
    assert {unit.stem for unit in units} == {f"edgefront-{name}" for name in ("agent", "api", "trainer", "worker")}
    for unit in units:  # programs and users are of a host where they are installed
        text = re.sub(r"(?<==)/opt/edgefront/[\w-]+/bin/\w+", "/bin/true", unit.read_text())
        (tmp_path / unit.name).write_text(text.replace("User=edgefront", "User=root"))
    done = subprocess.run(
        ["systemd-analyze", "verify", *sorted(tmp_path.glob("*.service"))], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
