"""Coordinator and worker as services: what their manager is told, how they end, and what they say of other releases."""

import signal
import socket
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from harness import BIN, Cluster, espalier, messages, stubs, wait_until


@contextmanager
def manager(path: Path) -> Iterator[socket.socket]:
    """The socket that systemd would listen at."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as words:
        words.bind(str(path))
        words.settimeout(30)
        yield words


def test_the_service_manager_is_told_of_start_and_end(tmp_path: Path) -> None:
    with (
        manager(tmp_path / "a") as of_coordinator,
        manager(tmp_path / "b") as of_worker,
        Cluster(
            tmp_path / "c",
            workers=1,
            coordinator_env={"NOTIFY_SOCKET": str(tmp_path / "a")},
            worker_env={0: {"NOTIFY_SOCKET": str(tmp_path / "b")}},
        ) as cluster,
    ):
        assert of_coordinator.recv(4096).decode() == f"READY=1\nSTATUS=listening at {cluster.address}"
        assert of_worker.recv(4096).decode() == f"READY=1\nSTATUS=worker w0 of the coordinator at {cluster.address}"
        cluster.signal_worker(0, signal.SIGTERM)
        assert of_worker.recv(4096) == b"STOPPING=1"
        assert cluster.processes[0].wait(timeout=20) == 0
        assert cluster.coordinator is not None
        cluster.coordinator.terminate()
        assert of_coordinator.recv(4096) == b"STOPPING=1"
        assert cluster.coordinator.wait(timeout=20) == 0


@contextmanager
def open_call(cluster: Cluster) -> Iterator[None]:
    """A call that nothing but its client ends."""
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    with cluster.channel() as channel:
        done = futures.Future[None]()

        def requests() -> Iterator[Any]:
            yield asked
            done.result()

        answers = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(requests())
        next(answers)
        try:
            yield
        finally:
            done.set_result(None)
            answers.cancel()


def drains(cluster: Cluster) -> bool:
    return "draining" in cluster.log("coordinator")


def test_the_grace_bounds_what_a_coordinator_waits_for(tmp_path: Path) -> None:
    with Cluster(tmp_path, workers=0, coordinator_args=("--stop-grace", "100ms")) as cluster, open_call(cluster):
        assert cluster.coordinator is not None
        cluster.coordinator.terminate()
        assert cluster.coordinator.wait(timeout=30) == 0


def test_a_second_signal_ends_a_coordinator_at_once(tmp_path: Path) -> None:
    with Cluster(tmp_path, workers=0, coordinator_args=("--stop-grace", "1h")) as cluster, open_call(cluster):
        assert cluster.coordinator is not None
        cluster.coordinator.send_signal(signal.SIGINT)
        wait_until(lambda: drains(cluster), 30, cluster.all_logs)
        assert cluster.coordinator.poll() is None
        cluster.coordinator.send_signal(signal.SIGTERM)
        assert cluster.coordinator.wait(timeout=30) == 128 + signal.SIGTERM


@pytest.mark.parametrize("program", ["espalier-coordinator", "espalier-worker"])
def test_a_grace_that_is_no_duration_is_refused(program: str) -> None:
    done = espalier("--stop-grace", "soon", program=BIN / program, check=False)
    assert done.code == 2
    assert done.err.splitlines()[-1] == (
        f"{program}: REQUEST_INVALID: --stop-grace: 'soon' is not a duration of 10ms to 24h such as 15s"
    )


def test_a_worker_of_another_release_is_named_in_the_log(tmp_path: Path) -> None:
    with Cluster(tmp_path, workers=0) as cluster, cluster.channel() as channel:
        _, worker_service = stubs()
        worker = messages("worker_service")
        hello = worker.Hello(
            kind=1,
            worker="old",
            incarnation="3f2504e0-4f89-41d3-9a0c-0305e82c3301",
            host="h",
            protocol_version=1,
            version="0.0.9",
        )
        session = worker_service.WorkerServiceStub(channel).Session(iter([worker.WorkerMessage(hello=hello)]))
        assert next(session).HasField("welcome")
        wait_until(lambda: "versions_differ" in cluster.log("coordinator"), 30, cluster.all_logs)
        (line,) = [line for line in cluster.log("coordinator").splitlines() if "versions_differ" in line]
        assert "worker=old its=0.0.9 ours=" in line


def test_a_server_that_does_not_know_the_call_is_of_another_release() -> None:
    """Something that answers as gRPC does and has none of our services."""
    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        done = espalier("runs", "--coordinator", f"127.0.0.1:{port}", check=False)
    finally:
        server.stop(None)
    assert done.code == 2
    assert f"what answers at 127.0.0.1:{port} does not know ListRuns: it is of another release" in done.err
