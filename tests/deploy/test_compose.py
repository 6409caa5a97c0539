"""docker-compose.yml and the images without building them: what they promise, and that they agree with the programs."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness import BIN, PROTO, espalier

ROOT = PROTO.parent
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
BUILT = {name: service for name, service in SERVICES.items() if "build" in service}
DOCKERFILES = sorted((ROOT / "deploy/docker").glob("*Dockerfile"))
PROGRAMS = {"coordinator": "espalier-coordinator", "worker": "espalier-worker"}


def version() -> str:
    found = re.search(r"project\(espalier VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
    assert found
    return found.group(1)


def stages(path: Path) -> dict[str, str]:
    """The instructions of each stage by its name, with continued lines joined; "" is one without a name."""
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    parts = re.split(r"^FROM .*?(?: AS (\w+))?$", text, flags=re.MULTILINE)
    return {parts[i] or "": parts[i + 1] for i in range(1, len(parts), 2)}


def stage(service: str) -> str:
    build = SERVICES[service]["build"]
    return stages(ROOT / build["dockerfile"])[build.get("target", "")]


def default(value: str) -> str:
    """What `${NAME:-default}` is where nothing is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)


@pytest.mark.parametrize("name", sorted(BUILT))
def test_a_service_is_confined(name: str) -> None:
    service = SERVICES[name]
    assert default(str(service["user"])) not in ("", "0", "root", "0:0")
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "unless-stopped"
    assert service["init"] is True
    assert service["mem_limit"]
    assert service["image"].endswith(f":{version()}")
    instructions = stage(name)
    assert re.search(r"^HEALTHCHECK .*CMD \[", instructions, re.MULTILINE)
    assert re.search(r"^USER (10001:10001|prometheus)$", instructions, re.MULTILINE)
    assert re.search(r"^CMD \[", instructions, re.MULTILINE), "the exec form: signals reach the program"


def test_ports_are_published_on_loopback_alone() -> None:
    for service in SERVICES.values():
        for port in service.get("ports", []):
            assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", default(port)), port


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_variables_are_options_of_the_program(name: str) -> None:
    known = set(re.findall(r"Env:(ESPALIER_\w+)", espalier("--help", program=BIN / PROGRAMS[name]).out))
    of_image = set(re.findall(r"(ESPALIER_\w+)=", "\n".join(re.findall(r"^ENV .*", stage(name), re.MULTILINE))))
    assert of_image
    assert of_image <= known
    assert set(SERVICES[name]["environment"]) <= known


def test_every_variable_of_the_file_is_described_in_it() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    described = set(re.findall(r"ESPALIER_\w+", "\n".join(re.findall(r"^#.*", text, re.MULTILINE))))
    assert set(re.findall(r"\$\{(\w+)", text)) == described


def test_ports_agree() -> None:
    """Of the image, of compose, of the health checks and of Prometheus's configuration."""
    scrapes = {
        job["job_name"]: job
        for job in yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())["scrape_configs"]
    }
    environment = dict(re.findall(r"(ESPALIER_\w+)=(\S+)", stage("coordinator")))
    assert environment["ESPALIER_LISTEN"].endswith(":4770")
    assert scrapes["espalier-coordinator"]["static_configs"] == [{"targets": ["coordinator:4771"]}]
    assert environment["ESPALIER_METRICS_LISTEN"].endswith(":4771")
    assert {port.rsplit(":", 1)[1] for port in SERVICES["coordinator"]["ports"]} == {"4770", "4771"}
    environment = dict(re.findall(r"(ESPALIER_\w+)=(\S+)", stage("worker")))
    (workers,) = scrapes["espalier-worker"]["dns_sd_configs"]
    assert (workers["names"], environment["ESPALIER_METRICS_LISTEN"]) == (["worker"], f"0.0.0.0:{workers['port']}")
    assert SERVICES["worker"]["environment"]["ESPALIER_COORDINATOR"] == "coordinator:4770"


def test_all_see_models_under_one_path() -> None:
    for name in PROGRAMS:
        (mount,) = [volume for volume in SERVICES[name]["volumes"] if "/models" in default(volume).split(":")]
        assert default(mount).startswith("models:/models")
        assert SERVICES[name]["environment"]["ESPALIER_MODEL_ROOT"] == "/models"


def test_named_volumes_are_declared() -> None:
    used = {default(v).split(":")[0] for s in SERVICES.values() for v in s.get("volumes", [])}
    assert {name for name in used if not name.startswith((".", "/"))} == set(COMPOSE["volumes"])
    for name in used - set(COMPOSE["volumes"]):
        assert (ROOT / name).exists(), name


def test_time_to_stop_is_longer_than_the_programs_take() -> None:
    for name, program in PROGRAMS.items():
        help_text = espalier("--help", program=BIN / program).out
        (grace,) = re.findall(r"--stop-grace TEXT=(\d+)s", help_text)
        assert int(SERVICES[name]["stop_grace_period"].removesuffix("s")) >= 2 * int(grace) + 4


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_what_images_copy_is_there_and_not_left_out(path: Path) -> None:
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for instructions in stages(path).values():
        for copied in re.findall(r"^COPY (?:--chmod=\d+ )?(.*) \S+$", instructions, re.MULTILINE):
            for source in copied.split():
                assert source == "." or any(ROOT.glob(source)), source
                assert source == "." or Path(source).parts[0] in kept, source


def test_the_version_is_that_of_the_project() -> None:
    (declared,) = re.findall(r"^ARG VERSION=(\S+)$", (ROOT / "deploy/docker/Dockerfile").read_text(), re.MULTILINE)
    assert declared == version()
