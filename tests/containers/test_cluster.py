"""docker-compose.yml for real: names, health, scrapes, a run, restarts, and volumes that outlive the containers."""

import json
import os
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import PROTO, bf16, espalier, make_checkpoint, recipe, wait_until

ROOT = PROTO.parent
ENGINE = os.environ["ENGINE"]
COMPOSE = os.environ["COMPOSE"].split()
ACCOUNT = 10001


def engine(*arguments: str | Path, check: bool = True) -> str:
    done = subprocess.run([ENGINE, *arguments], capture_output=True, text=True, check=False, timeout=300)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


class Composed:
    """The project of docker-compose.yml under a name of its own, on free ports."""

    def __init__(self, models: Path) -> None:
        self.environment = {
            **os.environ,
            "ESPALIER_MODELS": str(models),
            "ESPALIER_UID": str(ACCOUNT),
            "ESPALIER_GID": str(ACCOUNT),
            **dict.fromkeys(("ESPALIER_PORT", "ESPALIER_METRICS_PORT", "ESPALIER_PROMETHEUS_PORT"), "0"),
        }

    def __call__(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            [*COMPOSE, "--project-name", "espalier-test", *arguments],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def containers(self, service: str = "") -> list[str]:
        return self("ps", "-q", *([service] if service else [])).split()

    def up(self, workers: int = 2) -> None:
        self("up", "--detach", "--scale", f"worker={workers}")
        for container in self.containers():
            wait_until(lambda c=container: health(c) == "healthy", 120, lambda c=container: self.describe(c), 0.5)

    def describe(self, container: str) -> str:
        return f"{health(container)}\n{engine('logs', '--tail', '20', container, check=False)}\n{self('ps')}"

    def address(self, service: str, port: int) -> str:
        return self("port", service, str(port)).replace("0.0.0.0", "127.0.0.1")

    def cli(self, *arguments: str | Path) -> str:
        return espalier(*arguments, env={"ESPALIER_COORDINATOR": self.address("coordinator", 4770)}).out

    def ask(self, query: str) -> list[Any]:
        url = f"http://{self.address('prometheus', 9090)}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10) as answer:
            return list(json.load(answer)["data"]["result"])


def health(container: str) -> str:
    return engine("inspect", "--format", "{{.State.Health.Status}}", container, check=False)


@pytest.fixture(name="models", scope="module")
def fixture_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    models = tmp_path_factory.mktemp("models")
    random = np.random.default_rng(3)
    tensors = {f"l{i}.weight": bf16(random.standard_normal((64, 32)).astype("<f4")) for i in range(4)}
    make_checkpoint(models / "small", tensors)
    for path in [models, *models.rglob("*")]:
        os.chown(path, ACCOUNT, ACCOUNT)
    # pytest makes its folders for their owner alone, and the containers' account must come through.
    for parent in models.parents:
        if parent.stat().st_mode & 0o077 == 0:
            parent.chmod(0o711)
    return models


@pytest.fixture(name="half", scope="module")
def fixture_half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipes")
    return recipe(path, "half", 'MagnitudePruningModifier: {targets: ["re:l.*weight"], final_sparsity: 0.5}')


@pytest.fixture(name="cluster", scope="module")
def fixture_cluster(models: Path) -> Iterator[Composed]:
    cluster = Composed(models)
    cluster("down", "--volumes")
    try:
        cluster.up()
        yield cluster
    finally:
        cluster("down", "--volumes")


def test_a_run_goes_through_and_prometheus_has_its_figure(cluster: Composed, models: Path, half: Path) -> None:
    run = cluster.cli(
        "submit", half, "--model", "/models/small", "--output", "/models/out", "--workers", "2", "--hold", "--wait"
    )
    run = run.strip()
    report = json.loads(cluster.cli("report", run, "--mode", "gather", "--json"))["params_summary"]
    assert report["sparsity_percent"] == 50
    query = f'espalier_run_sparsity_ratio{{run="{run}",kind="measured"}}'
    wait_until(lambda: cluster.ask(query), 60, query, 0.5)
    assert float(cluster.ask(query)[0]["value"][1]) == 0.5
    wait_until(lambda: len(cluster.ask("up == 1")) == 3, 60, lambda: cluster.ask("up"), 0.5)
    cluster.cli("finish", run)
    cluster.cli("watch", run)
    assert json.loads(espalier("inspect", models / "out", "--json").out)["params_summary"]["sparsity_percent"] == 50
    espalier("verify", models / "out")
    assert (models / "out" / "model.safetensors").stat().st_uid == ACCOUNT


def test_services_find_each_other_by_name(cluster: Composed) -> None:
    (coordinator,) = cluster.containers("coordinator")
    assert "SERVING" in engine("exec", coordinator, "espalier", "health", "--coordinator", "coordinator:4770")


@pytest.mark.parametrize("service", ["coordinator", "worker", "prometheus"])
def test_containers_are_confined(cluster: Composed, service: str) -> None:
    container = cluster.containers(service)[0]
    uid = int(engine("exec", container, "id", "-u"))
    assert uid != 0
    assert (
        engine("exec", container, "sh", "-c", "touch /etc/x /usr/x 2>/dev/null; ls /etc/x /usr/x 2>/dev/null; true")
        == ""
    )
    assert engine("exec", container, "grep", "CapEff", "/proc/1/status").split()[1] == "0" * 16
    tools = "for t in g++ gcc cc cmake make ninja git python3 pip; do command -v $t; done; true"
    assert engine("exec", container, "sh", "-c", tools) == ""
    published = cluster(
        "port", service, {"coordinator": "4770", "worker": "4772", "prometheus": "9090"}[service], check=False
    )
    assert published == "" or published.startswith("127.0.0.1:")


def test_a_worker_that_dies_comes_back(cluster: Composed, half: Path) -> None:
    """Killed inside its container, as the kernel does when memory is short: the restart policy starts it again."""
    first = cluster.containers("worker")[0]
    before = engine("inspect", "--format", "{{.State.StartedAt}}", first)
    pid = engine("inspect", "--format", "{{.State.Pid}}", first)
    assert int(pid) > 1
    os.kill(int(pid), 9)
    wait_until(
        lambda: engine("inspect", "--format", "{{.State.StartedAt}}", first) != before and health(first) == "healthy",
        120,
        lambda: cluster.describe(first),
        0.5,
    )
    cluster.cli("submit", half, "--model", "/models/small", "--output", "/models/again", "--workers", "2", "--wait")


def test_workers_scale(cluster: Composed, half: Path) -> None:
    cluster.up(workers=3)
    cluster.cli("submit", half, "--model", "/models/small", "--output", "/models/three", "--workers", "3", "--wait")
    wait_until(lambda: len(cluster.ask("up == 1")) == 4, 60, lambda: cluster.ask("up"), 0.5)


def test_what_was_run_is_listed_after_the_containers_are_gone(cluster: Composed) -> None:
    before = [run["name"] for run in json.loads(cluster.cli("runs", "--json"))]
    assert before
    cluster("down")
    assert cluster.containers() == []
    cluster.up()
    assert [run["name"] for run in json.loads(cluster.cli("runs", "--json"))] == before
    assert cluster.ask("count_over_time(up[1h])")


def test_images_are_labelled_and_as_small_as_promised(capsys: pytest.CaptureFixture[str]) -> None:
    version = re.search(r"project\(espalier VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
    assert version
    limits = {"espalier": 200, "espalier-worker": 700, "espalier-prometheus": 450}  # MB
    for name, limit in limits.items():
        (image,) = json.loads(engine("image", "inspect", f"{name}:{version.group(1)}"))
        size = image["Size"] / 1e6
        with capsys.disabled():
            print(f"\n{name}: {size:.0f} MB", end="")
        assert size < limit
        labels = image["Config"]["Labels"]
        assert labels["org.opencontainers.image.title"]
