"""PyTorch's side of test_dcp.py, for an interpreter that has it:
torch_dcp.py load DIR FILE | consolidate DIR DIR | save FILE DIR"""

import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

RANKS = 2


def load(source: str, target: str) -> None:
    reader = HuggingFaceStorageReader(source)
    metadata = reader.read_metadata().state_dict_metadata
    state = {name: torch.zeros(m.size, dtype=m.properties.dtype) for name, m in metadata.items()}
    dcp.load(state, storage_reader=HuggingFaceStorageReader(source), no_dist=True)
    save_file(state, target)


def consolidate(source: str, target: str) -> None:
    from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files

    names = HuggingFaceStorageReader(source).read_metadata().state_dict_metadata
    consolidate_safetensors_files(source, target, fqn_to_index_mapping=dict.fromkeys(names, 1))


def rank_main(rank: int, store: str, source: str, target: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    state = {
        name: distribute_tensor(tensor, mesh, [Shard(0)]) if tensor.dim() > 0 else tensor
        for name, tensor in load_file(source).items()
    }
    dcp.save(state, storage_writer=HuggingFaceStorageWriter(target, save_distributed=True))
    dist.destroy_process_group()


def save(source: str, target: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_main, (str(Path(folder) / "store"), source, target), nprocs=RANKS)


if __name__ == "__main__":
    {"load": load, "consolidate": consolidate, "save": save}[sys.argv[1]](*sys.argv[2:])
