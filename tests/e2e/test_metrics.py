"""/metrics of both programs: what promtool makes of it, what it says of a run, and that a scrape waits for nothing."""

import json
import re
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from harness import BIN, PROTO, Cluster, Outcome, bf16, espalier, make_checkpoint, recipe, wait_until

HALF = 'MagnitudePruningModifier: {targets: ["re:l.*weight"], final_sparsity: 0.5}'
WORKER_METRICS = ("--metrics-listen", "127.0.0.1:0")


def small(directory: Path) -> Path:
    random = np.random.default_rng(3)
    return make_checkpoint(
        directory, {f"l{i}.weight": bf16(random.standard_normal((24, 13)).astype("<f4")) for i in range(4)}
    )


def addresses(cluster: Cluster) -> dict[str, str]:
    """Where each process of the cluster serves its metrics, by its log."""
    names = ["coordinator", *(f"worker-{i}" for i in range(cluster.workers))]
    found = {}
    for name in names:
        match = re.search(r"metrics=(127\.0\.0\.1:\d+)", cluster.log(name))
        assert match, cluster.log(name)
        found[name] = match.group(1)
    return found


def scrape(address: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{address}/metrics", timeout=5) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return str(answer.read().decode())


def value(text: str, series: str) -> float:
    (line,) = [line for line in text.splitlines() if line.startswith(series + " ")]
    return float(line.rsplit(" ", 1)[1])


def families(text: str) -> set[str]:
    return set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))


@pytest.fixture(name="cluster")
def fixture_cluster(tmp_path: Path) -> object:
    with Cluster(tmp_path / "c", workers=2, worker_args=WORKER_METRICS) as cluster:
        yield cluster


def test_a_run_in_figures(cluster: Cluster, tmp_path: Path) -> None:
    at = addresses(cluster)
    path = recipe(tmp_path, "half", HALF)
    arguments = ("--model", small(tmp_path / "model"), "--output", tmp_path / "out", "--workers", "2")
    done = cluster.cli("submit", path, *arguments, "--hold", "--json")
    name = json.loads(done.out)["name"]

    def measured() -> bool:
        return f'espalier_run_zeros{{run="{name}"}}' in scrape(at["coordinator"])

    wait_until(measured, 30, cluster.all_logs)
    report = json.loads(cluster.cli("report", name, "--json").out)["params_summary"]
    text = scrape(at["coordinator"])
    assert value(text, f'espalier_run_zeros{{run="{name}"}}') == report["sparse"]
    assert value(text, f'espalier_run_masked{{run="{name}"}}') == report["masked"]
    for kind in ("wanted", "measured"):
        (line,) = [x for x in text.splitlines() if x.startswith("espalier_run_sparsity_ratio{") and f'"{kind}"' in x]
        assert f'run="{name}"' in line
        assert float(line.rsplit(" ", 1)[1]) == pytest.approx(report["sparsity_percent"] / 100, abs=1e-12)
    for worker in ("worker-0", "worker-1"):
        of_worker = scrape(at[worker])
        assert value(of_worker, "espalier_worker_connected") == 1
        assert value(of_worker, "espalier_worker_mask_version") == 1
        assert value(of_worker, "espalier_worker_shard_bytes") > 0
        assert value(of_worker, 'espalier_phase_duration_seconds_count{phase="select"}') == 1
    cluster.cli("finish", name, "--wait")
    text = scrape(at["coordinator"])
    assert name not in text  # the series of a run end with it
    assert value(text, 'espalier_runs_ended_total{state="SUCCEEDED"}') == 1
    assert value(text, 'espalier_checkpoints_total{outcome="published"}') == 1
    written = sum(f.stat().st_size for f in (tmp_path / "out").glob("*.safetensors"))
    assert value(text, "espalier_checkpoint_written_bytes_total") >= written - 4096  # headers are rank 0's
    calls = [x for x in text.splitlines() if x.startswith("grpc_server_handled_total{") and '"FinishRun"' in x]
    assert [x.rsplit(" ", 1)[1] for x in calls if 'grpc_code="OK"' in x] == ["1"]
    cluster.cli("finish", name, check=False)
    calls = [x for x in scrape(at["coordinator"]).splitlines() if '"FinishRun"' in x and '"FailedPrecondition"' in x]
    assert [x.rsplit(" ", 1)[1] for x in calls] == ["1"]


def test_promtool_has_nothing_to_say(cluster: Cluster, tmp_path: Path) -> None:
    arguments = ("--model", small(tmp_path / "model"), "--output", tmp_path / "out", "--workers", "2")
    cluster.cli("submit", recipe(tmp_path, "half", HALF), *arguments, "--hold")
    wait_until(lambda: "espalier_run_zeros{" in scrape(addresses(cluster)["coordinator"]), 30, cluster.all_logs)
    for name, address in addresses(cluster).items():
        checked = subprocess.run(
            ["promtool", "check", "metrics"], input=scrape(address), capture_output=True, text=True, check=False
        )
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, ""), name


def test_what_is_exported_is_documented(cluster: Cluster) -> None:
    """The other way, that the table is the catalog, is metrics_test's."""
    page = (PROTO.parent / "docs/metrics.md").read_text()
    documented = set(re.findall(r"`((?:espalier|grpc_server|process)_[a-z_]+)`", page))
    exported = set().union(*(families(scrape(address)) for address in addresses(cluster).values()))
    assert exported <= documented


def test_a_scrape_waits_for_no_run(cluster: Cluster, tmp_path: Path) -> None:
    """A stopped worker holds up the run; figures of all others come at once."""
    at = addresses(cluster)
    arguments = ("--model", small(tmp_path / "model"), "--output", tmp_path / "out", "--workers", "2")
    cluster.cli("submit", recipe(tmp_path, "half", HALF), *arguments, "--hold")
    cluster.signal_worker(1, signal.SIGSTOP)
    start = time.monotonic()
    for name in ("coordinator", "worker-0"):
        assert "espalier_build_info" in scrape(at[name])
    assert time.monotonic() - start < 2
    lost = 'espalier_workers{state="LOST"}'
    wait_until(lambda: value(scrape(at["coordinator"]), lost) == 1, 20, cluster.all_logs)
    assert value(scrape(at["coordinator"]), "espalier_workers_lost_total") == 1
    failures = 'espalier_run_failures_total{reason="WORKER_LOST"}'
    wait_until(lambda: failures in scrape(at["coordinator"]), 20, cluster.all_logs)
    cluster.signal_worker(1, signal.SIGCONT)


def test_addresses_that_cannot_be_served(cluster: Cluster, tmp_path: Path) -> None:
    taken = addresses(cluster)["coordinator"]
    done = coordinator_with(tmp_path, taken)
    assert done.code == 5, done
    assert f"CANNOT_BIND: cannot serve metrics at {taken}" in done.err
    assert coordinator_with(tmp_path, "nowhere").code == 2


def coordinator_with(tmp_path: Path, metrics: str) -> Outcome:
    arguments = ("--listen", "127.0.0.1:0", "--metrics-listen", metrics, "--state-dir", tmp_path / "s")
    return espalier(*arguments, program=BIN / "espalier-coordinator", check=False, timeout=30)
