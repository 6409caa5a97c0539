"""Rules, alerts and dashboard: promtool's opinion, the runbooks, and a live Prometheus that scrapes a real run."""

import json
import os
import re
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from harness import PROTO, Cluster, bf16, make_checkpoint, recipe, wait_until

ROOT = PROTO.parent
RULES = ROOT / "deploy/prometheus/espalier.rules.yml"
TESTS = ROOT / "deploy/prometheus/espalier.rules.test.yml"
DASHBOARD = ROOT / "deploy/grafana/dashboards/espalier.json"


def promtool(*arguments: str | Path) -> None:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False, cwd=RULES.parent)
    assert done.returncode == 0, done.stdout + done.stderr


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return list(json.loads(DASHBOARD.read_text())["panels"])


def queries() -> list[tuple[str, str]]:
    """Title and query of each target, with Grafana's variables filled in."""
    found = []
    for panel in panels():
        for target in panel.get("targets", []):
            query = target["expr"].replace("$__rate_interval", "30s").replace("$instance", ".*")
            assert "$" not in query, query
            found.append((panel["title"], query))
    return found


def test_rules_and_configuration_are_valid() -> None:
    promtool("check", "rules", RULES)
    promtool("check", "config", RULES.parent / "prometheus.yml")
    promtool("test", "rules", TESTS)


def test_every_alert_has_a_runbook_and_is_tested_both_ways() -> None:
    runbook = (ROOT / "docs/operations.md").read_text()
    alerts = {rule["alert"] for rule in rules() if "alert" in rule}
    headings = set(re.findall(r"^### (Espalier\w+)$", runbook, re.MULTILINE))
    assert headings == alerts
    firing: set[str] = set()
    silent: set[str] = set()
    for case in yaml.safe_load(TESTS.read_text())["tests"]:
        for test in case["alert_rule_test"]:
            (firing if test.get("exp_alerts") else silent).add(test["alertname"])
    assert firing == alerts
    assert silent == alerts
    for rule in rules():
        if "alert" not in rule:
            continue
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
        assert rule["annotations"]["runbook_url"] == f"docs/operations.md#{rule['alert'].lower()}"


def test_rules_and_dashboard_name_metrics_that_exist() -> None:
    documented = set(
        re.findall(r"`((?:espalier|grpc_server|process)_[a-z_]+)`", (ROOT / "docs/metrics.md").read_text())
    )
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    for expression in [*(rule["expr"] for rule in rules()), *(query for _, query in queries())]:
        for name in re.findall(r"(?<![\w:])(?:espalier|grpc_server|process)_[a-z_]+(?=[{\[)\s]|$)", expression):
            assert re.sub(r"_(bucket|count|sum)$", "", name) in documented, name
        for name in re.findall(r"\b\w+:\w+:\w+\b", expression):
            assert name in recorded, name


def test_the_dashboard_is_well_formed() -> None:
    identifiers = [panel["id"] for panel in panels()]
    assert len(identifiers) == len(set(identifiers))
    for panel in panels():
        if panel["type"] == "row":
            continue
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}", panel["title"]
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24, panel["title"]


def fetch(address: str, path: str) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{address}{path}", timeout=10) as answer:
        return bytes(answer.read())


def get(address: str, path: str, **query: str) -> Any:
    return json.loads(fetch(address, f"{path}?{urllib.parse.urlencode(query)}"))


def is_ready(address: str) -> bool:
    """Prometheus takes calls before it has opened its database, and answers them with 503."""
    try:
        return bool(fetch(address, "/-/ready"))
    except urllib.error.HTTPError:
        return False


def listening_port(pid: int) -> int | None:
    """The port that a process of ours took when it was told port 0."""
    sockets = {str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink()}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                return int(fields[1].rsplit(":", 1)[1], 16)
    return None


@contextmanager
def prometheus(directory: Path, targets: dict[str, list[str]]) -> Iterator[str]:
    """A live Prometheus with our rules that scrapes `targets` every second; its address."""
    directory.mkdir()
    jobs = [{"job_name": job, "static_configs": [{"targets": addresses}]} for job, addresses in targets.items()]
    interval = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config = {"global": interval, "rule_files": [str(RULES)], "scrape_configs": jobs}
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                "--web.listen-address=127.0.0.1:0",
            ],
            stdout=log,
            stderr=log,
            cwd=directory,
        )
    try:
        wait_until(lambda: listening_port(process.pid) is not None, 30, (directory / "log").read_text)
        address = f"127.0.0.1:{listening_port(process.pid)}"
        wait_until(lambda: is_ready(address), 60, (directory / "log").read_text)
        yield address
    finally:
        process.terminate()
        process.wait(timeout=20)


def addresses(cluster: Cluster) -> dict[str, list[str]]:
    def of(name: str) -> str:
        match = re.search(r"metrics=(127\.0\.0\.1:\d+)", cluster.log(name))
        assert match, cluster.log(name)
        return match.group(1)

    workers = [of(f"worker-{i}") for i in range(cluster.workers)]
    return {"espalier-coordinator": [of("coordinator")], "espalier-worker": workers}


def test_every_query_of_the_dashboard_returns_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(3)
    tensors = {f"l{i}.weight": bf16(random.standard_normal((24, 16)).astype("<f4")) for i in range(4)}
    model = make_checkpoint(tmp_path / "model", tensors)
    path = recipe(tmp_path, "half", 'MagnitudePruningModifier: {targets: ["re:l.*weight"], final_sparsity: 0.5}')
    # Rank 1 of a group of two stops in its first update.
    workers: dict[str, Any] = {
        "worker_program": "espalier-worker-faults",
        "worker_env": {-1: {"ESPALIER_FAULT": "before_vote@1=stop"}},
        "worker_args": ("--metrics-listen", "127.0.0.1:0"),
    }
    with (
        Cluster(tmp_path / "c", workers=3, lease="60s", **workers) as cluster,
        prometheus(tmp_path / "p", addresses(cluster)) as address,
    ):

        def ask(query: str) -> list[Any]:
            answer = get(address, "/api/v1/query", query=query)
            assert answer["status"] == "success", answer
            return list(answer["data"]["result"])

        # Everything is scraped before anything happens: rates want a first value.
        wait_until(lambda: len(ask("up == 1")) == 4, 30, cluster.all_logs)
        shared = ("--model", model, "--workers", "1")
        cluster.cli("submit", path, *shared, "--output", tmp_path / "saved", "--wait")
        run = cluster.hold(path, model, 1)
        # And one that cannot go on: a held run expects nothing, and has no time of its last progress.
        cluster.cli("submit", path, "--model", model, "--workers", "2", "--hold")
        report = json.loads(cluster.cli("report", run, "--json").out)["params_summary"]
        ratio = f'espalier_run_sparsity_ratio{{run="{run}",kind="measured"}}'
        wait_until(lambda: ask(ratio), 20, cluster.all_logs)
        assert float(ask(ratio)[0]["value"][1]) == pytest.approx(report["sparsity_percent"] / 100, abs=1e-12)

        table = []
        for title, query in queries():
            wait_until(lambda query=query: ask(query), 20, query)
            results = ask(query)
            table.append(f"{title:32} {float(results[0]['value'][1]):>14.6g}  {len(results)} series")
    with capsys.disabled():
        print("\n" + "\n".join(table))


def test_the_address_of_prometheus_is_a_port_of_its_own() -> None:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        own.listen()
        assert listening_port(os.getpid()) == own.getsockname()[1]
