"""A program of somebody else's: Python's grpcio, with what reflection and the protos tell."""

import struct
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from harness import (
    Cluster,
    Tensor,
    bf16,
    error_info,
    expect_per_tensor,
    make_checkpoint,
    messages,
    read_safetensors,
    stored_pruned,
    write_safetensors,
)

RECIPE = """
prune_stage:
  run_type: oneshot
  pruning_modifiers:
    MagnitudePruningModifier: {targets: ["re:l.*"], final_sparsity: 0.5}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("client"), workers=2, lease="15s") as started:
        yield started


@pytest.fixture(scope="module")
def tensors() -> dict[str, Tensor]:
    random = np.random.default_rng(3)
    out = {f"l{i}.weight": bf16(random.standard_normal((64, 33)).astype("<f4")) for i in range(4)}
    out["big.weight"] = Tensor("F32", random.standard_normal((1500, 1000)).astype("<f4"))
    return out


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tensors: dict[str, Tensor]) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("client-model") / "model", tensors)


def create(cluster: Cluster, model: Path, **fields: Any) -> Any:
    pb = messages("sparsification_service")
    spec = {"recipe": RECIPE, "recipe_name": "r.yaml", "model_path": str(model), "world_size": 2}
    request_id = fields.pop("request_id", str(uuid.uuid4()))
    validate_only = fields.pop("validate_only", False)
    request = pb.CreateRunRequest(
        spec=pb.RunSpec(**{**spec, **fields}), request_id=request_id, validate_only=validate_only
    )
    return cluster.service().CreateRun(request, timeout=60)


def watch_until(cluster: Cluster, name: str, done: Any, resume: int = 0) -> list[Any]:
    pb = messages("sparsification_service")
    events = []
    stream = cluster.service().WatchRun(pb.WatchRunRequest(name=name, resume_revision=resume), timeout=120)
    for event in stream:
        events.append(event)
        if event.HasField("run") and done(event.run):
            break
    stream.cancel()
    return events


def is_held(run: Any) -> bool:
    state = messages("resources").Run.State
    assert run.state != state.Value("STATE_FAILED"), run.error.message
    return run.state == state.Value("STATE_RUNNING") and run.HasField("sparsity")


def test_reflection_and_health(cluster: Cluster) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

    with cluster.channel() as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        services = set(database.get_services())
        assert {
            "espalier.v1.SparsificationService",
            "espalier.v1.WorkerService",
            "grpc.health.v1.Health",
        } <= services
        file = database.FindFileContainingSymbol("espalier.v1.SparsificationService")
        assert "CreateRun" in [m.name for s in file.service for m in s.method]
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "espalier.v1.SparsificationService", "espalier.v1.WorkerService"):
            answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError) as unknown:
            health.Check(health_pb2.HealthCheckRequest(service="nobody"), timeout=5)
        assert unknown.value.code() == grpc.StatusCode.NOT_FOUND


def test_a_run_from_creation_to_the_saved_files(
    cluster: Cluster, model: Path, tensors: dict[str, Tensor], tmp_path: Path
) -> None:
    pb, state = messages("sparsification_service"), messages("resources").Run.State
    service = cluster.service()
    output = tmp_path / "out"
    request_id = str(uuid.uuid4())
    run = create(cluster, model, hold=True, output_path=str(output), request_id=request_id).run
    again = create(cluster, model, hold=True, output_path=str(output), request_id=request_id).run
    assert again.name == run.name
    with pytest.raises(grpc.RpcError) as reused:
        create(cluster, model, output_path=str(tmp_path / "other"), request_id=request_id)
    assert reused.value.code() == grpc.StatusCode.ALREADY_EXISTS
    assert error_info(reused.value).reason == "REQUEST_ID_REUSED"

    events = watch_until(cluster, run.name, is_held)
    revisions = [e.revision for e in events if e.type not in ("Bookmark", "Progress")]
    assert revisions == sorted(set(revisions))
    first = events[1].revision if len(events) > 1 else 0
    resumed = watch_until(cluster, run.name, is_held, resume=first)
    assert [e.revision for e in resumed] == list(range(first + 1, resumed[-1].revision + 1))

    report = list(service.ComputeSparsityReport(pb.ComputeSparsityReportRequest(name=run.name), timeout=60))
    rows = {p.name: p for part in report for p in part.page.parameters}
    assert rows.keys() == tensors.keys()
    expected = {n: expect_per_tensor(t, "0.5") for n, t in tensors.items() if n.startswith("l")}
    for name, pruned in expected.items():
        assert rows[name].masked == rows[name].zeros == rows[name].planned == pruned.sum()

    for name in ("l1.weight", "big.weight"):
        parts = list(service.ReadParameter(pb.ReadParameterRequest(name=run.name, parameter=name), timeout=60))
        data = b"".join(p.chunk.data for p in parts)
        assert all(zlib.crc32(p.chunk.data) == p.chunk.crc32 and len(p.chunk.data) <= 1 << 20 for p in parts)
        indexes = [p.chunk.index for p in parts if p.chunk.data]
        assert indexes == list(range(parts[0].header.total_chunks))
        want = tensors[name].values.reshape(-1).copy()
        if name in expected:
            want[expected[name]] = 0
        assert data == want.tobytes()
    some = service.ReadParameter(
        pb.ReadParameterRequest(name=run.name, parameter="big.weight", begin=999_990, end=1_000_010), timeout=60
    )
    values = struct.unpack("<20f", b"".join(p.chunk.data for p in some))
    assert list(values) == list(tensors["big.weight"].values.reshape(-1)[999_990:1_000_010])

    packed = b"".join(
        p.chunk.data for p in service.ReadMask(pb.ReadMaskRequest(name=run.name, parameter="l2.weight"), timeout=60)
    )
    mask = Tensor("U8", np.frombuffer(packed, np.uint8))
    assert (stored_pruned(mask, [64, 33]) == expected["l2.weight"]).all()

    with pytest.raises(grpc.RpcError) as missing:
        list(service.ReadParameter(pb.ReadParameterRequest(name=run.name, parameter="nobody"), timeout=60))
    assert missing.value.code() == grpc.StatusCode.NOT_FOUND
    assert error_info(missing.value).reason == "PARAMETER_NOT_FOUND"

    finished = service.FinishRun(pb.FinishRunRequest(name=run.name, request_id=str(uuid.uuid4())), timeout=60)
    assert finished.name == run.name
    last = watch_until(cluster, run.name, lambda r: r.state == state.Value("STATE_SUCCEEDED"))[-1]
    assert last.run.sparsity.masked == sum(int(p.sum()) for p in expected.values())
    saved = read_safetensors(output / "model.safetensors")
    assert (saved["l0.weight"].values.reshape(-1)[expected["l0.weight"]] == 0).all()
    with pytest.raises(grpc.RpcError) as ended:
        list(service.ReadParameter(pb.ReadParameterRequest(name=run.name, parameter="l1.weight"), timeout=60))
    assert error_info(ended.value).reason == "ILLEGAL_TRANSITION"
    listed = service.ListRuns(pb.ListRunsRequest(), timeout=10).runs
    assert run.name in [r.name for r in listed]


def test_error_details_reach_the_client(cluster: Cluster, model: Path) -> None:
    with pytest.raises(grpc.RpcError) as bad:
        create(cluster, model, recipe=RECIPE.replace("final_sparsity", "final_sparsty"))
    assert bad.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    info = error_info(bad.value)
    assert (info.reason, info.domain) == ("RECIPE_INVALID", "espalier")
    assert info.metadata["line"] == "5"
    assert "final_sparsity" in str(bad.value.details())


def test_a_recipe_with_200_errors_answers_inside_the_limits(cluster: Cluster, model: Path) -> None:
    fields = "\n".join(f"      mistake_number_{i}: {i}" for i in range(200))
    text = f"s_stage:\n  run_type: oneshot\n  p_modifiers:\n    MagnitudePruningModifier:\n{fields}\n"
    with pytest.raises(grpc.RpcError) as bad:
        create(cluster, model, recipe=text)
    assert bad.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert error_info(bad.value).reason == "RECIPE_INVALID"
    details = str(bad.value.details())
    assert "more" in details
    assert len(details.encode()) < 4096


def test_validate_only_changes_nothing(cluster: Cluster, model: Path) -> None:
    pb = messages("sparsification_service")
    before = len(cluster.service().ListRuns(pb.ListRunsRequest(), timeout=10).runs)
    answer = create(cluster, model, validate_only=True)
    assert answer.run.plan.pruned_parameters == 4
    assert answer.run.name == ""
    assert len(cluster.service().ListRuns(pb.ListRunsRequest(), timeout=10).runs) == before


def test_a_plan_of_40000_parameters_comes_in_pages(cluster: Cluster, tmp_path: Path) -> None:  # known-bugs 58
    one = np.array([[1, 2, 3, 4]], "<f4")
    names = [f"model.layers.{i // 400:03d}.mlp.experts.{i % 400:03d}.gate_proj.weight" for i in range(40_000)]
    model = tmp_path / "moe"
    model.mkdir()
    write_safetensors(model / "model.safetensors", {n: Tensor("F32", one) for n in names})
    pb = messages("sparsification_service")
    spec = pb.RunSpec(recipe=RECIPE.replace("re:l.*", "re:.*gate_proj.weight"), model_path=str(model), world_size=2)
    seen: list[str] = []
    token, pages = "", 0
    while True:
        request = pb.GetPlanRequest(spec=spec, page_size=5000, page_token=token)
        answer = cluster.service().GetPlan(request, timeout=120)
        assert answer.ByteSize() < 4 << 20
        seen += [p.name for p in answer.parameters]
        pages += 1
        token = answer.next_page_token
        if not token:
            break
    assert seen == sorted(names)
    assert pages == 8
    assert answer.summary.pruned_parameters == 40_000


def test_many_parameters_run_and_report(cluster: Cluster, tmp_path: Path) -> None:  # known-bugs 58
    one = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], "<f4")
    names = [f"model.layers.{i:05d}.gate_proj.weight" for i in range(6_000)]
    model = make_checkpoint(tmp_path / "many", {n: Tensor("F32", one) for n in names})
    pb = messages("sparsification_service")
    text = RECIPE.replace("re:l.*", "re:.*gate_proj.weight")
    run = create(cluster, model, recipe=text, output_path=str(tmp_path / "out")).run
    state = messages("resources").Run.State
    watch_until(cluster, run.name, lambda r: r.state in (state.Value("STATE_SUCCEEDED"), state.Value("STATE_FAILED")))
    final = cluster.service().GetRun(pb.GetRunRequest(name=run.name), timeout=10)
    assert final.state == state.Value("STATE_SUCCEEDED"), final.error.message
    report = list(cluster.service().ComputeSparsityReport(pb.ComputeSparsityReportRequest(name=run.name), timeout=60))
    rows = [p for part in report for p in part.page.parameters]
    assert len(rows) == 6_000
    assert all(p.masked == 4 for p in rows)
