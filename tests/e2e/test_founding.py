"""The founding figures, the founding defect made on purpose, and a gather that really gathers."""

import json
from pathlib import Path

import numpy as np
import pytest
from harness import Cluster, Tensor, espalier, make_checkpoint, recipe, tree

TOTAL, PRUNABLE, SPARSE, PERCENT = 15_191_712, 15_187_968, 2_322_540, 15.291973225121358
MASKED = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
)
TARGETS = 'targets: ["re:.*(q|k|v|o|gate|up)_proj.weight"]'


def founding_model(directory: Path, *, sparse: bool) -> Path:
    """The shape of the run that Espalier was founded on; with its zeros, or dense."""
    random = np.random.default_rng(1807)

    def weight(rows: int, columns: int, zeros: int) -> Tensor:
        values = np.abs(random.standard_normal(rows * columns).astype("<f4")) + np.float32(0.01)
        values[random.permutation(values.size)[: zeros if sparse else 0]] = 0
        return Tensor("F32", values.reshape(rows, columns))

    tensors = {"model.embed_tokens.weight": weight(32000, 288, 0)}
    for i in range(6):
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            tensors[f"model.layers.{i}.self_attn.{name}.weight"] = weight(288, 288, 41_475)
        tensors[f"model.layers.{i}.mlp.gate_proj.weight"] = weight(768, 288, 110_595)
        tensors[f"model.layers.{i}.mlp.up_proj.weight"] = weight(768, 288, 110_595)
        tensors[f"model.layers.{i}.mlp.down_proj.weight"] = weight(288, 768, 0)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{i}.{norm}.weight"] = Tensor("F32", np.ones(288, "<f4"))
    tensors["model.norm.weight"] = Tensor("F32", np.ones(288, "<f4"))
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "tie_word_embeddings": True}
    return make_checkpoint(directory, tensors, config)


@pytest.fixture(scope="module")
def sparse_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return founding_model(tmp_path_factory.mktemp("founding") / "sparse", sparse=True)


@pytest.fixture(scope="module")
def dense_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return founding_model(tmp_path_factory.mktemp("founding") / "dense", sparse=False)


@pytest.mark.parametrize("workers", [1, 3])
def test_founding_figures_in_both_modes(tmp_path: Path, sparse_model: Path, workers: int) -> None:
    with Cluster(tmp_path / "cluster", workers=workers, lease="15s") as cluster:
        run = cluster.hold(recipe(tmp_path, "hold", f"ConstantPruningModifier: {{{TARGETS}}}"), sparse_model, workers)
        reports = {
            mode: json.loads(cluster.cli("report", run, "--mode", mode, "--json").out)
            for mode in ("shard-counts", "gather")
        }
        cluster.cli("finish", run)
    model_bytes = TOTAL * 4
    tensors = 1 + 6 * 7 + 13
    for mode, report in reports.items():
        summary = report["params_summary"]
        assert summary["total"] == TOTAL, mode
        assert summary["prunable"] == PRUNABLE, mode
        assert summary["prunable_sparse"] == summary["sparse"] == summary["masked"] == SPARSE, mode
        assert summary["prunable_sparsity_percent"] == PERCENT, mode
        assert report["provenance"]["world_size"] == workers
    moved = {mode: report["provenance"].pop("bytes_moved") for mode, report in reports.items()}
    assert moved["gather"] >= model_bytes * (workers - 1) / workers
    assert moved["shard-counts"] == (0 if workers == 1 else 16 * tensors * workers)
    for report in reports.values():
        del report["provenance"]
    assert reports["gather"] == reports["shard-counts"]


def test_inspect_gives_the_founding_figures(sparse_model: Path) -> None:
    summary = json.loads(espalier("inspect", sparse_model, "--json").out)["params_summary"]
    assert (summary["total"], summary["prunable"], summary["prunable_sparse"]) == (TOTAL, PRUNABLE, SPARSE)
    assert summary["prunable_sparsity_percent"] == PERCENT


def test_a_corrupted_gather_changes_gather_alone(tmp_path: Path, sparse_model: Path) -> None:
    """One layer is masked, so that the corrupted chunk is of a parameter for which nothing is planned."""
    hold = 'ConstantPruningModifier: {targets: ["model.layers.5.self_attn.q_proj.weight"]}'
    fault_log = tmp_path / "faults"
    env = {"ESPALIER_FAULT": "gather_chunk=corrupt", "ESPALIER_FAULT_LOG": str(fault_log)}
    program = "espalier-worker-faults"
    with Cluster(tmp_path / "cluster", workers=2, lease="15s", worker_program=program, worker_env={-1: env}) as cluster:
        run = cluster.hold(recipe(tmp_path, "hold", hold), sparse_model, 2)
        counts = json.loads(cluster.cli("report", run, "--mode", "shard-counts", "--json").out)
        gather = json.loads(cluster.cli("report", run, "--mode", "gather", "--json").out)
    assert "gather_chunk" in fault_log.read_text()
    assert counts["params_summary"]["sparse"] == SPARSE
    assert gather["params_summary"]["sparse"] != SPARSE


def test_a_gather_that_contradicts_the_plan_ends_the_run(tmp_path: Path, sparse_model: Path) -> None:
    env = {"ESPALIER_FAULT": "gather_chunk=corrupt", "ESPALIER_FAULT_LOG": str(tmp_path / "faults")}
    program = "espalier-worker-faults"
    with Cluster(tmp_path / "cluster", workers=2, lease="15s", worker_program=program, worker_env={-1: env}) as cluster:
        run = cluster.hold(recipe(tmp_path, "hold", f"ConstantPruningModifier: {{{TARGETS}}}"), sparse_model, 2)
        report = cluster.cli("report", run, "--mode", "gather", "--json", check=False)
        assert report.code != 0
        assert "is not in the live tensor" in report.err
        watched = cluster.cli("watch", run, check=False)
    assert watched.code == 4
    assert "MASK_NOT_EFFECTIVE" in watched.err


FIFTY = f"MagnitudePruningModifier: {{{TARGETS}, final_sparsity: 0.5}}"


@pytest.mark.parametrize("workers", [1, 2])
def test_the_founding_defect_is_caught(tmp_path: Path, dense_model: Path, workers: int) -> None:
    """A parameter's storage is re-bound between select and swap: the mask lands on a tensor nobody reads."""
    env = {"ESPALIER_FAULT": "after_select=rebind", "ESPALIER_FAULT_LOG": str(tmp_path / "faults")}
    program = "espalier-worker-faults"
    with Cluster(tmp_path / "c", workers=workers, lease="15s", worker_program=program, worker_env={-1: env}) as cluster:
        arguments = ("--model", dense_model, "--output", tmp_path / "out", "--workers", str(workers), "--wait")
        done = cluster.cli("submit", recipe(tmp_path, "half", FIFTY), *arguments, check=False)
    assert "after_select" in (tmp_path / "faults").read_text()
    assert done.code == 4
    assert "MASK_NOT_EFFECTIVE" in done.err + done.out
    assert [p.name for p in tmp_path.iterdir() if "out" in p.name] == []


def test_without_the_checks_the_founding_defect_saves_a_dense_model(tmp_path: Path, dense_model: Path) -> None:
    """The same build with every check off: it is the checks that catch it, and nothing else."""
    env = {
        "ESPALIER_FAULT": "after_select=rebind",
        "ESPALIER_CHECKS": "off",
        "ESPALIER_FAULT_LOG": str(tmp_path / "faults"),
    }
    with Cluster(
        tmp_path / "c",
        lease="15s",
        worker_program="espalier-worker-faults",
        coordinator_program="espalier-coordinator-faults",
        worker_env={-1: env},
        coordinator_env={"ESPALIER_CHECKS": "off"},
    ) as cluster:
        arguments = ("--model", dense_model, "--output", tmp_path / "out", "--workers", "2", "--wait")
        cluster.cli("submit", recipe(tmp_path, "half", FIFTY), *arguments)
    assert "after_select" in (tmp_path / "faults").read_text()
    assert json.loads(espalier("inspect", tmp_path / "out", "--json").out)["params_summary"]["sparse"] == 0
    weights = tree(tmp_path / "out")["model.safetensors"]
    assert b"self_attn.q_proj" in weights[:100_000]
