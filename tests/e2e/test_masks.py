"""Masks that a checkpoint brings, what a report says of them, and what a saved checkpoint says of itself."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import (
    Cluster,
    Tensor,
    bf16,
    espalier,
    expect_n_of_m,
    make_checkpoint,
    read_checkpoint,
    read_masks,
    read_safetensors,
    recipe,
    write_safetensors,
)

HOLD = 'ConstantPruningModifier: {targets: ["re:l.*"]}'


def weights(rows: int = 24, columns: int = 16, layers: int = 4) -> dict[str, Tensor]:
    random = np.random.default_rng(3)
    return {f"l{i}.weight": bf16(random.standard_normal((rows, columns)).astype("<f4")) for i in range(layers)}


def params(text: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(text)
    return {name: {k: v for k, v in row.items() if k != "mask_version"} for name, row in report["params_info"].items()}


def test_a_mask_of_another_shape_is_refused(tmp_path: Path) -> None:  # known-bugs 3
    model = make_checkpoint(tmp_path / "model", weights())
    path = recipe(tmp_path, "half", 'MagnitudePruningModifier: {targets: ["re:l.*"], final_sparsity: 0.5}')
    espalier("run", path, "--model", model, "--output", tmp_path / "out")
    # The same masks beside weights of another shape.
    (tmp_path / "out/model.safetensors").unlink()
    write_safetensors(tmp_path / "out/model.safetensors", weights(columns=17), {"format": "pt"})
    done = espalier("run", path, "--model", tmp_path / "out", "--output", tmp_path / "no", check=False)
    assert done.code == 3
    assert "CHECKPOINT_INVALID" in done.err
    for part in ("l0.weight", "[24, 17]"):
        assert part in done.err, done.err
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("workers", ["1", "3"])
def test_a_hold_takes_the_zeros_for_masks(tmp_path: Path, workers: str) -> None:  # known-bugs 6
    tensors = weights()
    for i, tensor in enumerate(tensors.values()):
        tensor.values.reshape(-1)[i :: 3 + i] = 0
    tensors["l3.weight"].values.reshape(-1)[1] = 0x8000  # -0.0
    model = make_checkpoint(tmp_path / "model", tensors)
    arguments = ("--model", model, "--output", tmp_path / "out", "--workers", workers)
    espalier("run", recipe(tmp_path, "hold", HOLD), *arguments)
    for name, mask in read_masks(tmp_path / "out").items():
        np.testing.assert_array_equal(mask, (tensors[name].values.reshape(-1) & 0x7FFF) == 0)


def test_masks_survive_the_end_of_everything(tmp_path: Path) -> None:  # known-bugs 9
    model = make_checkpoint(tmp_path / "model", weights())
    path = recipe(
        tmp_path,
        "mixed",
        'MagnitudePruningModifier: {targets: ["re:l[01]"], mask_structure: "2:4"}',
        'MagnitudePruningModifier: {targets: ["re:l[23]"], final_sparsity: 0.7}',
    )
    with Cluster(tmp_path / "first") as cluster:
        name = cluster.hold(path, model, 2)
        cluster.cli("save", name, tmp_path / "saved")
        before = cluster.cli("report", name, "--json").out
    with Cluster(tmp_path / "second", workers=3) as cluster:
        name = cluster.hold(recipe(tmp_path, "hold", HOLD), tmp_path / "saved", 3)
        cluster.cli("save", name, tmp_path / "again")
        after = cluster.cli("report", name, "--json").out
    assert params(after) == params(before)
    # Also what of the masks is no bit.
    assert {row["structure"] for row in params(after).values()} == {"2:4", "unstructured"}
    assert read_masks(tmp_path / "again").keys() == read_masks(tmp_path / "saved").keys()
    for key, mask in read_masks(tmp_path / "saved").items():
        np.testing.assert_array_equal(read_masks(tmp_path / "again")[key], mask)
    tensor = read_checkpoint(model)["l0.weight"]
    np.testing.assert_array_equal(read_masks(tmp_path / "again")["l0.weight"], expect_n_of_m(tensor, 2, 4))


def test_the_saved_figures_are_those_of_the_saved_tensors(tmp_path: Path) -> None:  # known-bugs 14, 79
    model = make_checkpoint(tmp_path / "model", weights(rows=25, columns=13))
    path = recipe(tmp_path, "third", 'MagnitudePruningModifier: {targets: ["re:l[12]"], final_sparsity: 0.33}')
    espalier("run", path, "--model", model, "--output", tmp_path / "out", "--workers", "2")
    manifest = json.loads((tmp_path / "out/espalier/espalier.json").read_text())
    tensors = read_safetensors(tmp_path / "out/model.safetensors")
    zeros = {name: int(((t.values & 0x7FFF) == 0).sum()) for name, t in tensors.items()}
    assert {name: row["zeros"] for name, row in manifest["report"]["params_info"].items()} == zeros
    assert manifest["report"]["params_summary"]["sparse"] == sum(zeros.values())
    # The recipe is the one that was written, byte for byte; what was made of it stands beside it.
    assert manifest["recipe"] == path.read_text()
    assert manifest["plan"]["updates"][0]["sparsity"] == "0.33"


@pytest.mark.parametrize("mode", ["shard-counts", "gather"])
def test_totals_are_sums_of_shapes(tmp_path: Path, mode: str) -> None:  # known-bugs 29, 30
    tensors = weights(rows=7, columns=5, layers=3)
    tensors["norm.weight"] = bf16(np.ones(11, "<f4"))
    model = make_checkpoint(tmp_path / "model", tensors)
    path = recipe(tmp_path, "hold", HOLD)
    with Cluster(tmp_path / "c", workers=4) as cluster:
        for workers in (1, 3, 4):
            name = cluster.hold(path, model, workers)
            report = json.loads(cluster.cli("report", name, "--mode", mode, "--json").out)
            assert report["params_summary"]["total"] == sum(t.values.size for t in tensors.values())
            assert report["params_summary"]["sparse"] == 0
            shapes = {key: tuple(row["shape"]) for key, row in report["params_info"].items()}
            assert shapes == {key: t.values.shape for key, t in tensors.items()}
            cluster.cli("cancel", name)
            cluster.wait_for_workers(4)


def peak(pid: int) -> int:
    """Largest resident size of a process so far, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def test_a_gather_needs_the_memory_of_one_parameter(tmp_path: Path) -> None:  # known-bugs 27
    layers, size = 48, 1 << 20  # 48 of 2 MiB
    tensors = {f"l{i:02}.weight": bf16(np.full((1024, size // 1024), 1.5, "<f4")) for i in range(layers)}
    model = make_checkpoint(tmp_path / "model", tensors)
    with Cluster(tmp_path / "c") as cluster:
        name = cluster.hold(recipe(tmp_path, "hold", HOLD), model, 2)
        cluster.cli("report", name)
        before = {i: peak(p.pid) for i, p in cluster.processes.items()}
        report = json.loads(cluster.cli("report", name, "--mode", "gather", "--json").out)
        assert report["params_summary"]["total"] == layers * size
        for i, process in cluster.processes.items():
            # A few parameters and what the collectives hold, not the other half of the model.
            assert peak(process.pid) - before[i] < layers * size * 2 // 4
