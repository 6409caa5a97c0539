#!/usr/bin/env python3
"""Times what the peers do for the work of B3, B5, B7 and B8, and compares with the lines of our programs.

    peers.py LINES MODEL...

LINES is the output of the programs beside, each line followed by `model=DIR`. Needs PyTorch and numpy in the
interpreter that runs it; bench/run.sh says how to name one. Two Gloo ranks on loopback, one thread each, as ours.
"""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

WORLD = 2
RUNS = 3


def load(model: str) -> dict[str, torch.Tensor]:
    """All tensors of a one-file bf16 checkpoint, without a copy."""
    data = np.memmap(pathlib.Path(model) / "model.safetensors", dtype=np.uint8, mode="c")
    (length,) = struct.unpack("<Q", data[:8].tobytes())
    header = json.loads(data[8 : 8 + length].tobytes())
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = torch.from_numpy(data[begin:end]).view(torch.bfloat16).reshape(entry["shape"])
    return tensors


class Group(nn.Module):  # type: ignore[misc]  # torch may be missing where this is checked
    """The parameters of one decoder block, or what is left of the model beside the blocks."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            values = tensor.clone()
            if values.dim() == 2 and "embed" not in name:
                values[torch.rand(values.shape) < 0.5] = 0  # counting costs most at random halves
            self.register_parameter(name.replace(".", "_"), nn.Parameter(values, requires_grad=False))


class Model(nn.Module):  # type: ignore[misc]
    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        super().__init__()
        blocks: dict[str, dict[str, torch.Tensor]] = {}
        for name, tensor in tensors.items():
            match = re.search(r"layers\.(\d+)\.", name)
            blocks.setdefault(match[1] if match else "rest", {})[name] = tensor
        self.groups = nn.ModuleList(Group(tensors) for tensors in blocks.values())


def median_of(body: Callable[[], object]) -> float:
    """Median seconds of the slowest rank."""
    taken = []
    for run in range(RUNS + 1):
        dist.barrier()
        start = time.perf_counter()
        body()
        dist.barrier()
        if run:  # the first is the warm-up
            taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def fsdp1_summon(model: str) -> float:
    """FSDP1 gathers all parameters on all ranks, and writes them back; each counts."""
    cpu = torch.device("cpu")
    bare = Model(load(model))
    for i, group in enumerate(bare.groups):
        bare.groups[i] = FullyShardedDataParallel(group, use_orig_params=True, device_id=cpu)
    wrapped = FullyShardedDataParallel(bare, use_orig_params=True, device_id=cpu)

    def count() -> None:
        with FullyShardedDataParallel.summon_full_params(wrapped):
            for parameter in wrapped.parameters():
                torch.count_nonzero(parameter)

    return median_of(count)


def fsdp2(model: str, rank: int, target: pathlib.Path) -> dict[str, float]:
    """FSDP2 gathers one parameter after another and rank 0 counts; DCP saves and loads its shards."""
    sharded = Model(load(model))
    mesh = init_device_mesh("cpu", (WORLD,))
    for group in sharded.groups:
        fully_shard(group, mesh=mesh)
    fully_shard(sharded, mesh=mesh)

    def count() -> None:
        for parameter in sharded.parameters():
            full = parameter.full_tensor()
            if rank == 0:
                torch.count_nonzero(full)

    state = sharded.state_dict()
    return {
        "full_tensor": median_of(count),
        "dcp-save": median_of(lambda: dcp.save(state, checkpoint_id=target)),
        "dcp-load": median_of(lambda: dcp.load(state, checkpoint_id=target)),
    }


def rank_main(rank: int, model: str, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=WORLD)
    seconds = {"summon_full_params": fsdp1_summon(model)} | fsdp2(model, rank, pathlib.Path(folder) / "dcp")
    if rank == 0:
        (pathlib.Path(folder) / "seconds.json").write_text(json.dumps(seconds), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def ours(lines: list[str], row: str, what: str, model: str) -> float | None:
    """Seconds of our line of that row whose text has `what`, on that model."""
    for line in lines:
        if line.startswith(row + " ") and what in line and line.endswith(f"model={model}"):
            match = re.search(r"ours=([0-9.]+)s", line)
            return float(match[1]) if match else None
    return None


def show(row: str, what: str, peer: float, mine: float | None, target: float) -> None:
    if mine is None:
        return  # the row was not asked for
    ratio = peer / mine
    verdict = "PASS" if ratio >= target else "FAIL"
    print(
        f"{row} {what} ratio={ratio:.2f} target=>={target:.2f} {verdict} baseline={peer:.6f}s ours={mine:.6f}s",
        flush=True,
    )


def partition_seconds(model: str) -> float:
    """numpy.partition of the magnitudes of all linears, as bit patterns: its fastest form."""
    linears = [tensor for name, tensor in load(model).items() if "layers." in name and tensor.dim() == 2]
    work = [np.bitwise_and(tensor.view(torch.int16).numpy().reshape(-1), 0x7FFF) for tensor in linears]
    taken = []
    for run in range(RUNS + 1):
        start = time.perf_counter()
        for values in work:
            np.partition(values, values.size // 2 - 1)
        if run:
            taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def main() -> int:
    lines = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    for model in sys.argv[2:]:
        select = ours(lines, "B3", "select-model", model)
        if select is not None:
            show(
                "B3", f"select-model-vs-numpy.partition {pathlib.Path(model).name}", partition_seconds(model), select, 2
            )
        report = ours(lines, "B5", "report", model)
        loaded = ours(lines, "B7", "against pread into memory", model)
        saved = ours(lines, "B8", "save", model)
        if report is None and loaded is None and saved is None:
            continue
        # Beside the model, so that the disk is the one that checkpoints lie on.
        folder = tempfile.mkdtemp(prefix="peers-", dir=pathlib.Path(model).parent)
        try:
            mp.spawn(rank_main, args=(model, folder), nprocs=WORLD)
            seconds = json.loads((pathlib.Path(folder) / "seconds.json").read_text(encoding="utf-8"))
        finally:
            shutil.rmtree(folder)
        name = pathlib.Path(model).name
        show("B5", f"report-vs-FSDP1-summon_full_params {name}", seconds["summon_full_params"], report, 50)
        show("B5", f"report-vs-FSDP2-full_tensor {name}", seconds["full_tensor"], report, 20)
        show("B7", f"load-vs-DCP {name}", seconds["dcp-load"], loaded, 2)
        show("B8", f"save-vs-DCP {name}", seconds["dcp-save"], saved, 1.5)
    return 0


if __name__ == "__main__":
    sys.exit(main())
