"""World size changes nothing: byte-identical outputs for 1, 2, 3 and 4 workers, whatever the shapes and dtypes."""

import json
from pathlib import Path

import numpy as np
import pytest
from harness import (
    Tensor,
    bf16,
    espalier,
    expect_n_of_m,
    expect_per_tensor,
    make_checkpoint,
    read_checkpoint,
    read_masks,
    recipe,
    tree,
)

WORLD_SIZES = (1, 2, 3, 4)
AWKWARD = ("f64", "f32", "f16", "bf16")


def awkward_tensors() -> dict[str, Tensor]:
    """Ties, odd rows, fewer rows than ranks, nothing at all, and every value that arithmetic dislikes."""
    random = np.random.default_rng(20261201)
    out: dict[str, Tensor] = {}
    coarse = np.round(random.standard_normal((37, 21)) * 4) / 4  # full of ties and zeros
    special = coarse.copy()
    special.reshape(-1)[:6] = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40]
    out["a.f64.weight"] = Tensor("F64", special.astype("<f8"))
    out["a.f32.weight"] = Tensor("F32", special.astype("<f4"))
    out["a.f16.weight"] = Tensor("F16", special.astype("<f2"))
    out["a.bf16.weight"] = bf16(special.astype("<f4"))
    out["b.one_row.weight"] = bf16(random.standard_normal((1, 50)).astype("<f4"))
    out["b.two_rows.weight"] = bf16(random.standard_normal((2, 9)).astype("<f4"))
    out["b.equal.weight"] = bf16(np.full((7, 5), -0.5, "<f4"))
    out["b.wide.weight"] = bf16(random.standard_normal((5, 24)).astype("<f4"))
    out["c.empty.weight"] = Tensor("F32", np.zeros((0, 8), "<f4"))
    out["c.empty_rows.weight"] = Tensor("F32", np.zeros((4, 0), "<f4"))
    out["c.scalar"] = Tensor("F32", np.array(3.5, "<f4"))
    out["c.norm.weight"] = bf16(random.standard_normal(13).astype("<f4"))
    out["c.bias"] = Tensor("F32", random.standard_normal(13).astype("<f4"))
    out["d.ids"] = Tensor("I64", np.arange(-3, 20, dtype="<i8"))
    out["d.fp8.weight"] = Tensor("F8_E4M3", random.integers(0, 256, (6, 10), dtype=np.uint8))
    out["d.flags"] = Tensor("BOOL", random.integers(0, 2, 11, dtype=np.uint8))
    return out


@pytest.mark.parametrize("shards", [1, 3])
def test_outputs_are_byte_identical(tmp_path: Path, shards: int) -> None:
    tensors = awkward_tensors()
    model = make_checkpoint(tmp_path / "model", tensors, {"model_type": "test"}, shards)
    (model / "tokenizer.json").write_text("{}")
    (model / "pytorch_model.bin").write_bytes(b"stale")
    modifiers = (
        'MagnitudePruningModifier: {targets: ["re:a[.]f.*weight"], final_sparsity: 0.437}',
        'GlobalMagnitudePruningModifier: {targets: ["a.bf16.weight", "re:b[.](one|two|equal).*"], final_sparsity: 0.5, '
        "allow_empty: true}",
    )
    second = 'MagnitudePruningModifier: {targets: ["b.wide.weight"], final_sparsity: 0.75, mask_structure: "2:8"}'
    path = recipe(tmp_path, "awkward", *modifiers, second)
    outputs = []
    for workers in WORLD_SIZES:
        output = tmp_path / f"out-{workers}"
        espalier("run", path, "--model", model, "--output", output, "--workers", str(workers))
        outputs.append(tree(output))
    assert outputs[0].keys() == outputs[1].keys()
    for other in outputs[1:]:
        assert [k for k in outputs[0] if other.get(k) != outputs[0][k]] == []
    assert "tokenizer.json" in outputs[0]
    assert "pytorch_model.bin" not in outputs[0]

    masks, after = read_masks(tmp_path / "out-3"), read_checkpoint(tmp_path / "out-3")
    for name in ("a.f64.weight", "a.f32.weight", "a.f16.weight"):
        assert (masks[name] == expect_per_tensor(tensors[name], "0.437")).all(), name
    assert (masks["b.wide.weight"] == expect_n_of_m(tensors["b.wide.weight"], 2, 8)).all()
    for name, old in tensors.items():
        expected = old.values.reshape(-1).copy()
        if name in masks:
            expected[masks[name]] = 0
        assert after[name].dtype == old.dtype
        assert after[name].values.tobytes() == expected.tobytes(), name
    assert espalier("verify", tmp_path / "out-3").code == 0


@pytest.mark.parametrize(("keep", "group"), [(1, 4), (3, 4), (2, 4), (4, 8)])
def test_n_of_m_keeps_n(tmp_path: Path, keep: int, group: int) -> None:  # known-bugs 17
    random = np.random.default_rng(keep * 10 + group)
    tensors = {"l.weight": bf16((np.round(random.standard_normal((11, 40)) * 8) / 8).astype("<f4"))}
    model = make_checkpoint(tmp_path / "model", tensors)
    path = recipe(
        tmp_path, "nm", f'MagnitudePruningModifier: {{targets: ["l.weight"], mask_structure: "{keep}:{group}"}}'
    )
    for workers in (1, 3):
        output = tmp_path / f"out-{workers}"
        espalier("run", path, "--model", model, "--output", output, "--workers", str(workers))
        assert (read_masks(output)["l.weight"] == expect_n_of_m(tensors["l.weight"], keep, group)).all()


@pytest.mark.parametrize(("keep", "group"), [(2, 4), (3, 10), (5, 20)])
def test_n_of_m_of_transposed_layers_over_ranks(tmp_path: Path, keep: int, group: int) -> None:
    """GPT-2's Conv1D is stored [in, out]: groups run down the rows, of which the ranks own 20, 10 or 7."""
    random = np.random.default_rng(keep * 10 + group)
    name = "h.0.attn.c_attn.weight"
    values = (np.round(random.standard_normal((20, 9)) * 4) / 4).astype("<f4")  # ties, and zeros of their own
    tensors = {name: bf16(values), "h.0.ln_1.weight": bf16(random.standard_normal(9).astype("<f4"))}
    model = make_checkpoint(tmp_path / "model", tensors, {"model_type": "gpt2"})
    path = recipe(
        tmp_path, "nm", f'MagnitudePruningModifier: {{targets: ["{name}"], mask_structure: "{keep}:{group}"}}'
    )
    columns = Tensor("BF16", np.ascontiguousarray(tensors[name].values.T))
    expected = expect_n_of_m(columns, keep, group).reshape(9, 20).T.reshape(-1)
    outputs = []
    for workers in (1, 2, 3):
        output = tmp_path / f"out-{workers}"
        espalier("run", path, "--model", model, "--output", output, "--workers", str(workers))
        assert (read_masks(output)[name] == expected).all(), workers
        assert espalier("verify", output).code == 0
        outputs.append(tree(output))
    assert outputs[1:] == outputs[:1] * 2


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_second_recipe_continues_from_the_masks_of_the_first(tmp_path: Path, workers: int) -> None:
    random = np.random.default_rng(7)  # known-bugs 7, 8
    tensors = {f"l{i}.weight": bf16((np.round(random.standard_normal((9, 7)) * 6) / 6).astype("<f4")) for i in range(3)}
    model = make_checkpoint(tmp_path / "model", tensors)
    targets = 'targets: ["re:l.*"]'
    first = recipe(tmp_path, "first", f"MagnitudePruningModifier: {{{targets}, final_sparsity: 0.4}}")
    second = recipe(tmp_path, "second", f"MagnitudePruningModifier: {{{targets}, final_sparsity: 0.7}}")
    lower = recipe(tmp_path, "lower", f"MagnitudePruningModifier: {{{targets}, final_sparsity: 0.1}}")
    hold = recipe(tmp_path, "hold", f"ConstantPruningModifier: {{{targets}}}")
    runs = {"first": (first, model), "second": (second, tmp_path / "first"), "lower": (lower, tmp_path / "second")}
    runs["hold"] = (hold, tmp_path / "second")
    for name, (path, source) in runs.items():
        espalier("run", path, "--model", source, "--output", tmp_path / name, "--workers", str(workers))
    one, two = read_masks(tmp_path / "first"), read_masks(tmp_path / "second")
    for name, tensor in tensors.items():
        assert (one[name] == expect_per_tensor(tensor, "0.4")).all()
        assert (two[name] == expect_per_tensor(tensor, "0.7", base=one[name])).all()
        assert not (one[name] & ~two[name]).any(), "a pruned weight came back"
        assert (read_masks(tmp_path / "lower")[name] == two[name]).all()
        assert (read_masks(tmp_path / "hold")[name] == two[name]).all()


def test_sharded_output_has_a_true_index(tmp_path: Path) -> None:  # known-bugs 44, 55
    tensors = awkward_tensors()
    model = make_checkpoint(tmp_path / "model", tensors)
    path = recipe(tmp_path, "half", 'MagnitudePruningModifier: {targets: ["re:a[.]f.*weight"], final_sparsity: 0.5}')
    output = tmp_path / "out"
    espalier("run", path, "--model", model, "--output", output, "--workers", "2", "--max-shard-size", "2000")
    index = json.loads((output / "model.safetensors.index.json").read_text())
    files = sorted(set(index["weight_map"].values()))
    assert files == sorted(p.name for p in output.glob("*.safetensors"))
    assert files == [f"model-{i + 1:05d}-of-{len(files):05d}.safetensors" for i in range(len(files))]
    assert index["metadata"]["total_size"] == sum(t.values.nbytes for t in tensors.values())
    assert read_checkpoint(output).keys() == tensors.keys()
