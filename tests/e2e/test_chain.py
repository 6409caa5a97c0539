"""Several recipes in one run."""

import json
from pathlib import Path

import numpy as np
import pytest
from harness import Cluster, bf16, espalier, expect_per_tensor, make_checkpoint, read_checkpoint, read_masks, recipe


@pytest.fixture(name="model")
def fixture_model(tmp_path: Path) -> Path:
    random = np.random.default_rng(11)
    return make_checkpoint(
        tmp_path / "model",
        {f"l{i}.weight": bf16(random.standard_normal((24, 16)).astype("<f4")) for i in range(4)},
    )


def weights_and_masks(directory: Path) -> dict[str, bytes]:
    files = {path.name: path.read_bytes() for path in directory.glob("*.safetensors")}
    return {**files, "masks": (directory / "espalier/masks.safetensors").read_bytes()}


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_chain_is_one_run_after_another(tmp_path: Path, model: Path, workers: str) -> None:  # known-bugs 79
    first = recipe(
        tmp_path,
        "first",
        'MagnitudePruningModifier: {targets: ["re:l[01]"], final_sparsity: 0.3}',
        'MagnitudePruningModifier: {targets: ["l2"], mask_structure: "2:4"}',
    )
    # Over the masks of the first, whose positions stay pruned.
    second = recipe(tmp_path, "second", 'GlobalMagnitudePruningModifier: {targets: ["re:l"], final_sparsity: 0.6}')
    shared = ("--workers", workers)
    espalier("run", first, "--model", model, "--output", tmp_path / "a", *shared)
    espalier("run", second, "--model", tmp_path / "a", "--output", tmp_path / "b", *shared)
    espalier("run", first, second, "--model", model, "--output", tmp_path / "chain", *shared)
    assert weights_and_masks(tmp_path / "chain") == weights_and_masks(tmp_path / "b")
    assert espalier("verify", tmp_path / "chain").code == 0
    # Every recipe as it was submitted.
    manifest = json.loads((tmp_path / "chain/espalier/espalier.json").read_text())
    assert manifest["recipe"] == first.read_text()
    assert manifest["recipe_name"] == str(first)
    assert manifest["plan"]["then"] == [{"recipe": second.read_text(), "recipe_name": str(second)}]
    assert [stage["recipe"] for stage in manifest["plan"]["stages"]] == [0, 1]


def test_text_moved_from_one_recipe_to_the_next_is_found(tmp_path: Path, model: Path) -> None:
    recipes = [
        recipe(tmp_path, name, f"MagnitudePruningModifier: {{targets: [{name}], final_sparsity: 0.5}}")
        for name in ("l0", "l1")
    ]
    output = tmp_path / "out"
    espalier("run", *recipes, "--model", model, "--output", output)
    path = output / "espalier/espalier.json"
    manifest = json.loads(path.read_text())
    manifest["recipe"], moved = manifest["recipe"][:-1], manifest["recipe"][-1]
    manifest["plan"]["then"][0]["recipe"] = moved + manifest["plan"]["then"][0]["recipe"]
    path.write_text(json.dumps(manifest))
    done = espalier("verify", output, check=False)
    assert done.code == 4, done
    assert "recipe" in done.out + done.err


def test_the_last_recipe_wins_where_they_prune_the_same(tmp_path: Path, model: Path) -> None:  # known-bugs 2
    recipes = [
        recipe(tmp_path, f"to-{percent}", f"MagnitudePruningModifier: {{targets: [l0], final_sparsity: 0.{percent}}}")
        for percent in (20, 40, 70)
    ]
    espalier("run", *recipes, "--model", model, "--output", tmp_path / "out")
    pruned = expect_per_tensor(read_checkpoint(model)["l0.weight"], "0.7")
    np.testing.assert_array_equal(read_masks(tmp_path / "out")["l0.weight"], pruned)
    report = json.loads(espalier("inspect", tmp_path / "out", "--json").out)
    row = report["params_info"]["l0.weight"]
    assert (row["zeros"], row["masked"]) == (int(pruned.sum()), int(pruned.sum()))
    assert espalier("verify", tmp_path / "out").code == 0


def test_chains_are_planned_and_submitted(tmp_path: Path, model: Path) -> None:
    good = recipe(tmp_path, "good", "MagnitudePruningModifier: {targets: [l0], final_sparsity: 0.5}")
    bad = recipe(tmp_path, "bad", "MagnitudePruningModifier: {targets: [l0], final_sparsty: 0.5}")
    plan = json.loads(espalier("plan", good, good, "--model", model, "--json").out)
    assert [(stage["recipe"], stage["name"]) for stage in plan["stages"]] == [(0, "good_stage"), (1, "good_stage")]
    assert (plan["recipe"], plan["then"]) == (str(good), [str(good)])
    refused = espalier("plan", good, bad, "--model", model, check=False)
    assert refused.code == 3
    assert f"{bad}:4:" in refused.err
    with Cluster(tmp_path / "cluster", workers=1) as cluster:
        output = tmp_path / "out"
        cluster.cli("submit", good, good, "--model", model, "--output", output, "--wait")
        assert json.loads((output / "espalier/espalier.json").read_text())["plan"]["then"][0]["recipe_name"] == str(
            good
        )
        twice = cluster.cli("submit", "-", "-", "--model", model, check=False)
        assert twice.code == 2
        assert "REQUEST_INVALID" in twice.err
