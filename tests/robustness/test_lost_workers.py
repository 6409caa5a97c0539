"""Workers killed and stopped at named points: FAILED with rank and reason inside the lease, and nothing mixed."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from harness import (
    BIN,
    SMOLLM2,
    Cluster,
    Tensor,
    bf16,
    espalier,
    leftovers,
    make_checkpoint,
    messages,
    recipe,
    wait_until,
)

LEASE = 2
POINTS = ("after_select", "before_vote", "after_vote", "in_swap", "in_save")  # in_save: known-bugs 23


def model(directory: Path) -> Path:
    random = np.random.default_rng(1)
    tensors: dict[str, Tensor] = {
        f"l{i}.weight": bf16(random.standard_normal((96, 64)).astype("<f4")) for i in range(8)
    }
    return make_checkpoint(directory, tensors)


def ask_for_everything(cluster: Cluster, name: str) -> list[Any]:
    """What a curious client gets of live data; refusals are fine."""
    pb, service = messages("sparsification_service"), cluster.service()
    answers: list[Any] = []
    calls = (
        lambda: service.ComputeSparsityReport(pb.ComputeSparsityReportRequest(name=name), timeout=LEASE + 8),
        lambda: service.ReadMask(pb.ReadMaskRequest(name=name, parameter="l0.weight"), timeout=LEASE + 8),
    )
    for call in calls:
        try:
            answers += list(call())
        except grpc.RpcError as error:
            assert error.code() in (  # noqa: PT017  # a refusal is one of several right answers
                grpc.StatusCode.ABORTED,
                grpc.StatusCode.FAILED_PRECONDITION,
                grpc.StatusCode.DATA_LOSS,
                grpc.StatusCode.DEADLINE_EXCEEDED,
                grpc.StatusCode.CANCELLED,
            ), error
    return answers


def mask_versions(answers: list[Any]) -> set[int]:
    """Versions that the answers speak of."""
    found = set()
    for answer in answers:
        if hasattr(answer, "page"):
            found |= {p.mask_version for p in answer.page.parameters}
            if answer.HasField("summary"):
                found.add(answer.summary.sparsity.mask_version)
        elif answer.HasField("header"):
            found.add(answer.header.mask_version)
    return found


@pytest.mark.parametrize("action", ["kill", "stop"])
@pytest.mark.parametrize("point", POINTS)
def test_a_lost_worker_fails_the_run(tmp_path: Path, point: str, action: str) -> None:
    fault_log = tmp_path / "faults"
    env = {"ESPALIER_FAULT": f"{point}@1={action}", "ESPALIER_FAULT_LOG": str(fault_log)}
    output = tmp_path / "outputs" / "out"
    output.parent.mkdir()
    pb, state = messages("sparsification_service"), messages("resources").Run.State
    with Cluster(
        tmp_path / "c", lease=f"{LEASE}s", worker_program="espalier-worker-faults", worker_env={-1: env}
    ) as cluster:
        path = recipe(tmp_path, "half", 'MagnitudePruningModifier: {targets: ["re:l.*"], final_sparsity: 0.5}')
        arguments = ("--model", model(tmp_path / "model"), "--output", output, "--workers", "2", "--json")
        name = json.loads(cluster.cli("submit", path, *arguments).out)["name"]
        wait_until(fault_log.exists, 30, lambda: "the fault did not fire\n" + cluster.all_logs())
        fired = time.monotonic()
        answers = ask_for_everything(cluster, name) if point != "in_save" else []

        def failed() -> bool:
            return cluster.service().GetRun(pb.GetRunRequest(name=name), timeout=5).state == state.Value("STATE_FAILED")

        wait_until(failed, LEASE + 5, lambda: "the run did not fail in time\n" + cluster.all_logs())
        assert time.monotonic() - fired <= LEASE + 5
        run = cluster.service().GetRun(pb.GetRunRequest(name=name), timeout=5)
        assert "rank 1" in run.error.message, run.error.message
        assert "w" in run.error.message
        if point != "in_save":
            assert run.mask_version == 0
            assert mask_versions(answers) <= {0}
        # The survivor is free again, without a restart of anything.
        cluster.wait_for_workers(1, timeout=20)
        wait_until(lambda: list(output.parent.iterdir()) == [], 10, "a partial output was left")
        if action == "stop":
            cluster.signal_worker(1, signal.SIGCONT)
            # It comes back as an idle one; whatever it still says, nothing of it counts.
            cluster.wait_for_workers(2, timeout=20)
            assert failed()
            if point != "in_save":  # by then the report of the committed masks is kept, rightly
                assert ask_for_everything(cluster, name) == []
            run = cluster.service().GetRun(pb.GetRunRequest(name=name), timeout=5)
            assert run.state == state.Value("STATE_FAILED")
        assert list(leftovers(output.parent)) == [] or action == "stop"


@pytest.mark.parametrize("point", ["after_select", "in_save"])
def test_a_worker_told_to_end_in_mid_work(tmp_path: Path, point: str) -> None:  # known-bugs 86, 87
    fault_log = tmp_path / "faults"
    env = {"ESPALIER_FAULT": f"{point}@1=term", "ESPALIER_FAULT_LOG": str(fault_log)}
    output = tmp_path / "outputs" / "out"
    output.parent.mkdir()
    pb, states = messages("sparsification_service"), messages("resources").Run.State
    with Cluster(
        tmp_path / "c", lease=f"{LEASE}s", worker_program="espalier-worker-faults", worker_env={-1: env}
    ) as cluster:
        path = recipe(tmp_path, "half", 'MagnitudePruningModifier: {targets: ["re:l.*"], final_sparsity: 0.5}')
        arguments = ("--model", model(tmp_path / "model"), "--output", output, "--workers", "2", "--json")
        name = json.loads(cluster.cli("submit", path, *arguments).out)["name"]
        wait_until(fault_log.exists, 30, lambda: "the fault did not fire\n" + cluster.all_logs())
        done = ("STATE_FAILED", "STATE_SUCCEEDED")

        def state() -> str:
            run = cluster.service().GetRun(pb.GetRunRequest(name=name), timeout=5)
            return str(states.Name(run.state))

        wait_until(lambda: state() in done, LEASE + 10, lambda: "the run did not end\n" + cluster.all_logs())
        # The one that was told ends within its grace time, and in order; the other is not left in a collective.
        wait_until(lambda: any(p.poll() is not None for p in cluster.processes.values()), 10, cluster.all_logs)
        ended = [process.returncode for process in cluster.processes.values() if process.poll() is not None]
        assert ended == [0], cluster.all_logs()
        cluster.wait_for_workers(1, timeout=20)
        # The command that was under way may have been finished in that time: all of it then, and otherwise nothing.
        if state() == "STATE_SUCCEEDED":
            assert espalier("verify", output).code == 0
        else:
            run = cluster.service().GetRun(pb.GetRunRequest(name=name), timeout=5)
            assert "rank 1" in run.error.message, run.error.message
            wait_until(lambda: list(output.parent.iterdir()) == [], 10, "a partial output was left")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    output = tmp_path / "out"
    path = recipe(tmp_path, "half", 'MagnitudePruningModifier: {targets: ["re:.*_proj.weight"], final_sparsity: 0.5}')
    with (tmp_path / "log").open("w") as log:
        command = subprocess.Popen(
            [BIN / "espalier", "run", path, "--model", SMOLLM2, "--output", output, "--workers", "2"],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
    children: list[int] = []

    def both_workers() -> bool:
        found = Path(f"/proc/{command.pid}/task").glob("*/children")
        children[:] = [int(pid) for file in found for pid in file.read_text().split()]
        return len(children) >= 3

    wait_until(both_workers, 30, "children did not start")
    command.send_signal(number)
    assert command.wait(timeout=20) == {signal.SIGINT: 130, signal.SIGTERM: 143}[number]
    wait_until(lambda: not any(alive(pid) for pid in children), 10, "children were left running")
    assert not output.exists()
    assert [p for p in tmp_path.iterdir() if ".espalier-" in p.name] == []


def test_a_killed_command_takes_its_children_with_it(tmp_path: Path) -> None:
    path = recipe(tmp_path, "hold", 'ConstantPruningModifier: {targets: ["re:l.*"]}')
    with (tmp_path / "log").open("w") as log:
        command = subprocess.Popen(
            [
                BIN / "espalier",
                "run",
                path,
                "--model",
                model(tmp_path / "model"),
                "--output",
                tmp_path / "out",
                "--hold",
                "--listen",
                "127.0.0.1:0",
            ],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
    children: list[int] = []

    def started() -> bool:
        found = Path(f"/proc/{command.pid}/task").glob("*/children")
        children[:] = [int(pid) for file in found for pid in file.read_text().split()]
        return len(children) >= 2

    wait_until(started, 30, "children did not start")
    command.kill()
    command.wait()
    wait_until(lambda: not any(alive(pid) for pid in children), 10, "children outlived the command")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_stopped_worker_of_espalier_run(tmp_path: Path) -> None:
    """known-bugs 35: the command itself ends, with the rank in its message, though a child never answers again."""
    env = {"ESPALIER_FAULT": "before_vote@1=stop", "ESPALIER_FAULT_LOG": str(tmp_path / "faults")}
    path = recipe(tmp_path, "half", 'MagnitudePruningModifier: {targets: ["re:l.*"], final_sparsity: 0.5}')
    arguments = ("--model", model(tmp_path / "model"), "--output", tmp_path / "out", "--workers", "2", "--lease", "2s")
    start = time.monotonic()
    programs = tmp_path / "bin"  # children are found beside the command
    programs.mkdir()
    shutil.copy(BIN / "espalier", programs)
    (programs / "espalier-coordinator").symlink_to(BIN / "espalier-coordinator")
    (programs / "espalier-worker").symlink_to(BIN / "espalier-worker-faults")
    environment = {**env, "TMPDIR": str(tmp_path)}
    done = espalier("run", path, *arguments, env=environment, check=False, timeout=60, program=programs / "espalier")
    assert (tmp_path / "faults").exists(), done
    assert done.code == 1
    assert "rank 1" in done.err
    assert time.monotonic() - start < 30
    assert not (tmp_path / "out").exists()
