"""A coordinator killed with kill -9 and started again: everything acknowledged is still listed."""

import json
from pathlib import Path

import numpy as np
from harness import Cluster, bf16, make_checkpoint, messages, recipe


def test_acknowledged_runs_survive_kill(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    model = make_checkpoint(
        tmp_path / "model", {f"l{i}.weight": bf16(random.standard_normal((16, 8)).astype("<f4")) for i in range(4)}
    )
    path = recipe(tmp_path, "half", 'MagnitudePruningModifier: {targets: ["re:l.*"], final_sparsity: 0.5}')
    pb, state = messages("sparsification_service"), messages("resources").Run.State
    with Cluster(tmp_path / "c", workers=1, lease="5s") as cluster:
        names = []
        for i in range(3):
            arguments = ("--model", model, "--output", tmp_path / f"out-{i}", "--wait", "--json")
            names.append(json.loads(cluster.cli("submit", path, *arguments).out)["name"])
        held = json.loads(cluster.cli("submit", path, "--model", model, "--hold", "--json").out)["name"]
        queued = json.loads(cluster.cli("submit", path, "--model", model, "--workers", "3", "--json").out)["name"]
        service = cluster.service()
        events = {n: list(service.WatchRun(pb.WatchRunRequest(name=n, resume_revision=1), timeout=30)) for n in names}
        assert cluster.coordinator is not None
        cluster.coordinator.kill()
        cluster.coordinator.wait()
        cluster.start_coordinator()
        runs = {r.name: r for r in cluster.service().ListRuns(pb.ListRunsRequest(), timeout=10).runs}
        assert set(runs) == {*names, held, queued}
        for name in names:
            assert runs[name].state == state.Value("STATE_SUCCEEDED")
            after = list(cluster.service().WatchRun(pb.WatchRunRequest(name=name, resume_revision=1), timeout=30))
            assert [(e.revision, e.type, e.message) for e in after] == [
                (e.revision, e.type, e.message) for e in events[name]
            ]
            report = cluster.service().ComputeSparsityReport(pb.ComputeSparsityReportRequest(name=name), timeout=30)
            assert sum(p.masked for part in report for p in part.page.parameters) == 4 * 64
        assert runs[held].state == state.Value("STATE_FAILED")
        assert "restart" in runs[held].error.message
        assert runs[queued].state in (state.Value("STATE_QUEUED"), state.Value("STATE_FAILED"))
        if runs[queued].state == state.Value("STATE_QUEUED"):
            cluster.cli("cancel", queued)  # first come, first served: it would hold up the next one
        # Workers come back by themselves and the next run works (known-bugs 42).
        cluster.wait_for_workers(1, timeout=30)
        cluster.cli("submit", path, "--model", model, "--output", tmp_path / "after", "--wait")


def test_quick_restarts_on_one_port(tmp_path: Path) -> None:  # known-bugs 39
    pb = messages("sparsification_service")
    with Cluster(tmp_path / "c", workers=1, lease="5s") as cluster:
        for _ in range(5):
            assert cluster.coordinator is not None
            cluster.coordinator.kill()
            cluster.coordinator.wait()
            cluster.start_coordinator()
        cluster.wait_for_workers(1, timeout=30)
        workers = cluster.service().ListWorkers(pb.ListWorkersRequest(), timeout=10).workers
        assert [w.name for w in workers] == ["workers/w0"]
