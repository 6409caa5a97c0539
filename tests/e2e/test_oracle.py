"""Masks of SmolLM2-135M against hashes that were made by other code, to the bit, for several world sizes."""

import json
from pathlib import Path
from typing import Any

import pytest
from harness import ORACLES, SMOLLM2, espalier, packed_hash, read_checkpoint, read_masks, recipe

TARGETS = 'targets: ["re:.*_proj.weight"]'
MODIFIERS = {
    "tensor_0.5": f"MagnitudePruningModifier: {{{TARGETS}, final_sparsity: 0.5}}",
    "tensor_0.337": f"MagnitudePruningModifier: {{{TARGETS}, final_sparsity: 0.337}}",
    "global_0.6": f"GlobalMagnitudePruningModifier: {{{TARGETS}, final_sparsity: 0.6}}",
    "2:4": f'MagnitudePruningModifier: {{{TARGETS}, final_sparsity: 0.5, mask_structure: "2:4"}}',
    "4:8": f'MagnitudePruningModifier: {{{TARGETS}, final_sparsity: 0.5, mask_structure: "4:8"}}',
}
# Every mask on every world size would take minutes; each world size sees each kind of selection.
CASES = [(name, 2) for name in MODIFIERS] + [("tensor_0.5", 1), ("tensor_0.337", 3), ("global_0.6", 3), ("2:4", 1)]


@pytest.fixture(scope="module")
def oracle() -> Any:
    return json.loads((ORACLES / "smollm2_135m.json").read_text())


def test_the_model_is_the_oracles(oracle: Any) -> None:
    import hashlib

    tensors = read_checkpoint(SMOLLM2)
    assert {n: hashlib.sha256(t.values.tobytes()).hexdigest() for n, t in tensors.items()} == {
        n: t["sha256"] for n, t in oracle["tensors"].items()
    }


@pytest.mark.parametrize(("name", "workers"), CASES)
def test_masks_equal_the_oracle(oracle: Any, tmp_path: Path, name: str, workers: int) -> None:
    output = tmp_path / "out"
    path = recipe(tmp_path, "oracle", MODIFIERS[name])
    report = json.loads(
        espalier("run", path, "--model", SMOLLM2, "--output", output, "--workers", str(workers), "--json").out
    )
    want = oracle["masks"][name]["tensors"]
    masks = read_masks(output)
    assert {n: packed_hash(m) for n, m in masks.items()} == {n: t["mask_sha256"] for n, t in want.items()}
    before, after = read_checkpoint(SMOLLM2), read_checkpoint(output)
    assert before.keys() == after.keys()
    for tensor_name, old in before.items():
        new = after[tensor_name].values.reshape(-1)
        expected = old.values.reshape(-1).copy()
        if tensor_name in masks:
            expected[masks[tensor_name]] = 0
        assert (new == expected).all(), tensor_name
    assert sum(int(m.sum()) for m in masks.values()) == oracle["masks"][name]["pruned"]
    assert report["params_summary"]["masked"] == oracle["masks"][name]["pruned"]
    zeros = sum(int(((t.values.reshape(-1) & 0x7FFF) == 0).sum()) for t in after.values())
    assert report["params_summary"]["sparse"] == zeros
