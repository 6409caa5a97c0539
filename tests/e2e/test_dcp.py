"""Sharded safetensors of PyTorch DCP's Hugging Face writer, read and written; and PyTorch itself where there is one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import (
    Cluster,
    Tensor,
    bf16,
    espalier,
    make_checkpoint,
    read_checkpoint,
    read_dcp,
    read_masks,
    read_safetensors,
    recipe,
    tree,
    without_provenance,
    write_dcp,
)

CONFIG = {"model_type": "test", "vocab_size": 11}
HALF = 'MagnitudePruningModifier: {targets: ["re:.*l[0-9].weight"], final_sparsity: 0.5}'


def model_tensors() -> dict[str, Tensor]:
    random = np.random.default_rng(20261201)
    coarse = np.round(random.standard_normal((9, 14)) * 4) / 4
    return {
        "model.embed_tokens.weight": bf16(random.standard_normal((11, 14)).astype("<f4")),
        "model.l0.weight": Tensor("F32", coarse.astype("<f4")),
        "model.l1.weight": bf16(random.standard_normal((9, 14)).astype("<f4")),
        "model.l2.weight": bf16(random.standard_normal((1, 14)).astype("<f4")),
        "model.norm.weight": bf16(random.standard_normal(5).astype("<f4")),
        "model.scale": Tensor("F32", np.array(3.5, "<f4")),
    }


def report(directory: Path) -> Any:
    return without_provenance(json.loads(espalier("inspect", directory, "--json").out))


def rows(tensors: dict[str, Tensor], ranks: int) -> list[dict[str, tuple[list[int], Tensor]]]:
    """As FSDP2 shards: by rows, as torch.chunk cuts them."""
    out: list[dict[str, tuple[list[int], Tensor]]] = [{} for _ in range(ranks)]
    for name, tensor in tensors.items():
        if tensor.values.ndim == 0:
            out[0][name] = ([], tensor)
            continue
        step = -(-tensor.values.shape[0] // ranks)
        for rank in range(ranks):
            part = tensor.values[rank * step : (rank + 1) * step]
            if part.size:
                out[rank][name] = ([rank * step] + [0] * (tensor.values.ndim - 1), Tensor(tensor.dtype, part))
    return out


def blocks(tensors: dict[str, Tensor]) -> list[dict[str, tuple[list[int], Tensor]]]:
    """By columns as well, as tensor parallelism shards."""
    out = rows(tensors, 2)
    for name in ("model.l0.weight", "model.l1.weight"):
        values, dtype = tensors[name].values, tensors[name].dtype
        out[0][name] = ([0, 0], Tensor(dtype, values[:, :5]))
        out[1][name] = ([0, 5], Tensor(dtype, values[:4, 5:]))
        out.append({name: ([4, 5], Tensor(dtype, values[4:, 5:]))})
    return out


def test_shards_are_a_model(tmp_path: Path) -> None:
    tensors = model_tensors()
    whole = make_checkpoint(tmp_path / "whole", tensors, CONFIG)
    path = recipe(tmp_path, "half", HALF)
    espalier("run", path, "--model", whole, "--output", tmp_path / "out", "--workers", "2")
    expected = tree(tmp_path / "out")
    sources = {
        "rows": write_dcp(tmp_path / "rows", rows(tensors, 3), CONFIG),
        "blocks": write_dcp(tmp_path / "blocks", blocks(tensors), CONFIG),
    }
    (tmp_path / "folder").mkdir()
    sources["folder"] = tmp_path / "folder"
    write_dcp(sources["folder"] / "sharded", rows(tensors, 2))
    (sources["folder"] / "config.json").write_text(json.dumps(CONFIG))
    for name, source in sources.items():
        assert report(source) == report(whole)
        plans = [json.loads(espalier("plan", path, "--model", m, "--json").out) for m in (source, whole)]
        assert [plan.pop("model") for plan in plans] == [str(source), str(whole)]
        assert plans[0] == plans[1]
        for workers in (1, 2, 3):
            output = tmp_path / f"out-{name}-{workers}"
            espalier("run", path, "--model", source, "--output", output, "--workers", str(workers))
            assert tree(output) == expected, (name, workers)


def test_shards_are_written_and_read_again(tmp_path: Path) -> None:
    tensors = model_tensors()
    model = make_checkpoint(tmp_path / "model", tensors, CONFIG)
    path = recipe(tmp_path, "half", HALF)
    espalier("run", path, "--model", model, "--output", tmp_path / "whole", "--workers", "1")
    expected = read_checkpoint(tmp_path / "whole")
    for workers in (1, 2, 3):
        output = tmp_path / f"dcp-{workers}"
        arguments = ("run", path, "--model", model, "--workers", str(workers), "--format", "dcp")
        espalier(*arguments, "--output", output)
        names = sorted(p.name for p in output.glob("*.safetensors"))
        assert names == [f"shard-{i + 1:05d}-model-00001-of-00001.safetensors" for i in range(workers)]
        written = read_dcp(output)
        assert written.keys() == expected.keys()
        for name, tensor in expected.items():
            assert written[name].dtype == tensor.dtype
            assert written[name].values.shape == tensor.values.shape, name
            assert written[name].values.tobytes() == tensor.values.tobytes(), name
        for name, mask in read_masks(tmp_path / "whole").items():
            assert (read_masks(output)[name] == mask).all()
        assert espalier("verify", output).code == 0
        assert report(output) == report(tmp_path / "whole")
        # The same bytes again from as many workers; and on with it, whole again, from another number.
        espalier(*arguments, "--output", tmp_path / "again")
        assert tree(tmp_path / "again") == tree(output)
        espalier("run", path, "--model", output, "--output", tmp_path / "again", "--workers", "2", "--overwrite")
        again = read_checkpoint(tmp_path / "again")
        assert all(again[n].values.tobytes() == t.values.tobytes() for n, t in expected.items())
        subprocess.run(["rm", "-r", tmp_path / "again"], check=True)


def test_a_save_on_request(tmp_path: Path) -> None:
    tensors = model_tensors()
    model = make_checkpoint(tmp_path / "model", tensors, CONFIG)
    path = recipe(tmp_path, "half", HALF)
    with Cluster(tmp_path / "c", workers=2, lease="15s") as cluster:
        run = cluster.hold(path, model, 2)
        cluster.cli("save", run, tmp_path / "dcp", "--format", "dcp", "--max-shard-size", "300")
        cluster.cli("save", run, tmp_path / "hf", "--format", "hf")
        cluster.cli("finish", run, "--wait")
    parts = sorted(p.name[-14:] for p in (tmp_path / "dcp").glob("shard-00001-*.safetensors"))
    assert len(parts) > 1
    written, expected = read_dcp(tmp_path / "dcp"), read_checkpoint(tmp_path / "hf")
    assert written.keys() == expected.keys()
    assert all(written[n].values.tobytes() == t.values.tobytes() for n, t in expected.items())
    assert espalier("verify", tmp_path / "dcp").code == 0


def test_what_is_missing_is_found(tmp_path: Path) -> None:
    tensors = model_tensors()
    path = recipe(tmp_path, "half", HALF)
    source = write_dcp(tmp_path / "source", rows(tensors, 3), CONFIG)
    output = tmp_path / "output"
    espalier("run", path, "--model", source, "--output", output, "--workers", "3", "--format", "dcp")
    for directory in (source, output):
        first = directory / "shard-00001-model-00001-of-00001.safetensors"
        first.rename(tmp_path / "kept")
        done = espalier("inspect", directory, check=False)
        assert done.code == 3, done
        assert first.name in done.err
        (tmp_path / "kept").rename(first)
        for shard in (3, 2):  # the last one, then the last two
            (directory / f"shard-0000{shard}-model-00001-of-00001.safetensors").unlink()
            for command in (("inspect", directory), ("plan", path, "--model", directory)):
                done = espalier(*command, check=False)
                assert done.code == 3, done
                assert "CHECKPOINT_INVALID" in done.err
    assert espalier("verify", output, check=False).code == 4


def torch_python() -> str | None:
    """An interpreter with PyTorch and safetensors: ESPALIER_TORCH_PYTHON, or this one."""
    for python in filter(None, (os.environ.get("ESPALIER_TORCH_PYTHON"), sys.executable)):
        found = subprocess.run(
            [python, "-c", "import torch.distributed.checkpoint.hf_storage, safetensors.torch"],
            capture_output=True,
            check=False,
            timeout=300,
        )
        if found.returncode == 0:
            return python
    return None


def test_pytorch_reads_and_writes_the_same(tmp_path: Path) -> None:
    python = torch_python()
    if python is None:
        pytest.skip("no PyTorch with safetensors: name an interpreter that has them in ESPALIER_TORCH_PYTHON")
    script = Path(__file__).parent / "torch_dcp.py"

    def torch(*arguments: str | Path) -> None:
        subprocess.run([python, script, *arguments], check=True, timeout=300)

    tensors = model_tensors()
    model = make_checkpoint(tmp_path / "model", tensors, CONFIG)
    path = recipe(tmp_path, "half", HALF)
    espalier("run", path, "--model", model, "--output", tmp_path / "dcp", "--workers", "3", "--format", "dcp")
    expected = read_dcp(tmp_path / "dcp")
    (tmp_path / "joined").mkdir()
    torch("load", tmp_path / "dcp", tmp_path / "loaded.safetensors")
    torch("consolidate", tmp_path / "dcp", tmp_path / "joined")
    loaded = read_safetensors(tmp_path / "loaded.safetensors")
    joined = {n: t for p in (tmp_path / "joined").glob("*.safetensors") for n, t in read_safetensors(p).items()}
    assert loaded.keys() == joined.keys() == expected.keys()
    for name, tensor in expected.items():
        assert loaded[name].values.tobytes() == tensor.values.tobytes(), name
        if tensor.values.ndim > 0:  # of a scalar PyTorch's own consolidation leaves the place empty
            assert joined[name].values.tobytes() == tensor.values.tobytes(), name

    # A job of two ranks saves what FSDP2 holds; it is the same model.
    torch("save", tmp_path / "model" / "model.safetensors", tmp_path / "job")
    (tmp_path / "job" / "config.json").write_text(json.dumps(CONFIG))
    assert len(list((tmp_path / "job").glob("shard-*.safetensors"))) == 2
    assert report(tmp_path / "job") == report(model)
    for source, output in ((model, tmp_path / "a"), (tmp_path / "job", tmp_path / "b")):
        espalier("run", path, "--model", source, "--output", output, "--workers", "2")
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
