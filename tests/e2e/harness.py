"""Starts the real programs, makes checkpoints, and counts masks without any of the product's code."""

import hashlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt

BIN = Path(os.environ["ESPALIER_BIN"])
SMOLLM2 = Path(os.environ["ESPALIER_SMOLLM2"])
ORACLES = Path(os.environ["ESPALIER_ORACLES"])
PROTO = Path(os.environ["ESPALIER_PROTO"])

U8 = npt.NDArray[np.uint8]


# ---------------------------------------------------------------- safetensors, read and written by hand

DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "I64": np.dtype("<i8"),
    "F8_E4M3": np.dtype("u1"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("u1"),
}


@dataclass(frozen=True)
class Tensor:
    """The raw elements of a tensor; BF16 as its 16 bits."""

    dtype: str
    values: npt.NDArray[Any]


def bf16(values: npt.NDArray[np.float32]) -> Tensor:
    """Rounds to nearest even, as every framework does."""
    bits = values.astype("<f4").view("<u4")
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return Tensor("BF16", rounded.astype("<u2"))


def write_safetensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name, tensor in tensors.items():
        size = tensor.values.nbytes
        header[name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.values.shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            out.write(np.ascontiguousarray(tensor.values).tobytes())


def read_safetensors(path: Path) -> dict[str, Tensor]:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    out = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        out[name] = Tensor(
            entry["dtype"], np.frombuffer(data[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
        )
    return out


def read_checkpoint(directory: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint directory, by its index where it has one."""
    index = directory / "model.safetensors.index.json"
    if not index.exists():
        return read_safetensors(directory / "model.safetensors")
    weight_map = json.loads(index.read_text())["weight_map"]
    files = {file: read_safetensors(directory / file) for file in set(weight_map.values())}
    return {name: files[file][name] for name, file in weight_map.items()}


def make_checkpoint(
    directory: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any] | None = None, shards: int = 1
) -> Path:
    directory.mkdir(parents=True)
    if config is not None:
        (directory / "config.json").write_text(json.dumps(config))
    if shards == 1:
        write_safetensors(directory / "model.safetensors", tensors, {"format": "pt"})
        return directory
    names = list(tensors)
    weight_map = {}
    for i in range(shards):
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: tensors[name] for name in names[i::shards]}
        write_safetensors(directory / file, part, {"format": "pt"})
        weight_map.update(dict.fromkeys(part, file))
    total = sum(t.values.nbytes for t in tensors.values())
    (directory / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map})
    )
    return directory


def write_dcp(
    directory: Path,
    pieces: Sequence[Mapping[str, tuple[Sequence[int], Tensor]]],
    config: Mapping[str, Any] | None = None,
) -> Path:
    """Shards as PyTorch DCP's Hugging Face writer makes them: for each rank its pieces with their origins."""
    directory.mkdir(parents=True)
    if config is not None:
        (directory / "config.json").write_text(json.dumps(config))
    for i, rank in enumerate(pieces):
        info = {name: {"saved_offsets": list(origin)} for name, (origin, _) in rank.items()}
        write_safetensors(
            directory / f"shard-{i + 1:05d}-model-00001-of-00001.safetensors",
            {name: tensor for name, (_, tensor) in rank.items()},
            {"DCP_SHARDING_INFO": json.dumps(info), "DCP_VERSION": "1.0", "format": "pt"},
        )
    return directory


def read_dcp(directory: Path) -> dict[str, Tensor]:
    """The tensors that the shards of a directory make up; every element must be there once."""
    pieces: dict[str, list[tuple[list[int], Tensor]]] = {}
    for path in sorted(directory.glob("shard-*.safetensors")):
        data = path.read_bytes()
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        info = json.loads(header["__metadata__"]["DCP_SHARDING_INFO"])
        for name, tensor in read_safetensors(path).items():
            pieces.setdefault(name, []).append((info[name]["saved_offsets"], tensor))
    out = {}
    for name, parts in pieces.items():
        ends = [[o + s for o, s in zip(origin, t.values.shape, strict=True)] for origin, t in parts]
        shape = tuple(max(end) for end in zip(*ends, strict=True))
        values, seen = np.zeros(shape, parts[0][1].values.dtype), np.zeros(shape, int)
        for origin, tensor in parts:
            where = tuple(slice(o, o + s) for o, s in zip(origin, tensor.values.shape, strict=True))
            values[where] = tensor.values
            seen[where] += 1
        assert (seen == 1).all(), name
        out[name] = Tensor(parts[0][1].dtype, values)
    return out


# ---------------------------------------------------------------- the selection rule, once more and independently


def magnitudes(tensor: Tensor) -> npt.NDArray[np.uint64]:
    """Integers that order as |w| does, NaN last."""
    width = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}[tensor.dtype]
    bits = tensor.values.reshape(-1).view(f"<u{width}").astype(np.uint64)
    return bits & np.uint64((1 << (8 * width - 1)) - 1)


def half_even(sparsity: str, n: int) -> int:
    return round(Fraction(sparsity) * n)


def prune_smallest(key: npt.NDArray[np.uint64], count: int) -> npt.NDArray[np.bool_]:
    """True where pruned: the `count` smallest, among equals the latest first."""
    order = np.argsort(key[::-1], kind="stable")[:count]
    pruned = np.zeros(key.size, bool)
    pruned[key.size - 1 - order] = True
    return pruned


def expect_per_tensor(
    tensor: Tensor, sparsity: str, base: npt.NDArray[np.bool_] | None = None
) -> npt.NDArray[np.bool_]:
    key = magnitudes(tensor)
    already = (key == 0) if base is None else (key == 0) | base
    count = max(half_even(sparsity, key.size), int(already.sum()))
    return prune_smallest(np.where(already, np.uint64(0), key + np.uint64(1)), count)


def expect_n_of_m(tensor: Tensor, keep: int, group: int) -> npt.NDArray[np.bool_]:
    key = magnitudes(tensor).reshape(-1, group)
    order = np.argsort(key[:, ::-1], axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(group)[None, :], axis=1)
    count = np.maximum(group - keep, (key == 0).sum(axis=1))
    return (rank[:, ::-1] < count[:, None]).reshape(-1)


def packed_hash(pruned: npt.NDArray[np.bool_]) -> str:
    """SHA-256 of the keep bits of a whole tensor, flat, least significant bit first."""
    return hashlib.sha256(np.packbits(~pruned, bitorder="little").tobytes()).hexdigest()


def stored_pruned(packed: Tensor, shape: Sequence[int]) -> npt.NDArray[np.bool_]:
    """The flat pruned positions of a mask as espalier/masks.safetensors stores it, row by row."""
    rows = shape[0] if shape else 1
    rest = int(np.prod(shape[1:], dtype=np.int64)) if len(shape) > 1 else 1
    bits = np.unpackbits(packed.values.reshape(rows, -1), axis=1, bitorder="little")
    assert not bits[:, rest:].any(), "padding bits are set"
    return bits[:, :rest].reshape(-1) == 0


def read_masks(directory: Path) -> dict[str, npt.NDArray[np.bool_]]:
    path = directory / "espalier" / "masks.safetensors"
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    shapes = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["shapes"])
    return {name: stored_pruned(tensor, shapes[name]) for name, tensor in read_safetensors(path).items()}


# ---------------------------------------------------------------- programs


@dataclass
class Outcome:
    code: int
    out: str
    err: str


def espalier(
    *args: str | Path,
    env: Mapping[str, str] | None = None,
    timeout: float = 300,
    check: bool = True,
    program: Path = BIN / "espalier",
) -> Outcome:
    done = subprocess.run(
        [program, *map(str, args)],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    outcome = Outcome(done.returncode, done.stdout, done.stderr)
    assert not check or outcome.code == 0, f"exit {outcome.code}\n{outcome.out}\n{outcome.err}"
    return outcome


def recipe(directory: Path, name: str, *modifiers: str, run_type: str = "oneshot") -> Path:
    """A recipe of one stage whose modifiers are given in YAML's flow style."""
    path = directory / f"{name}.yaml"
    lines = "\n".join(f"    - {modifier}" for modifier in modifiers)
    path.write_text(f"{name.replace('-', '_')}_stage:\n  run_type: {run_type}\n  pruning_modifiers:\n{lines}\n")
    return path


def tree(directory: Path) -> dict[str, bytes]:
    """Every file of an output with its bytes; `provenance` blocks taken out of espalier/espalier.json."""
    out = {}
    for path in sorted(directory.rglob("*")):
        if not path.is_file():
            continue
        data = path.read_bytes()
        if path.name == "espalier.json":
            data = json.dumps(without_provenance(json.loads(data))).encode()
        out[str(path.relative_to(directory))] = data
    return out


def without_provenance(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_provenance(v) for k, v in value.items() if k != "provenance"}
    if isinstance(value, list):
        return [without_provenance(v) for v in value]
    return value


@dataclass
class Cluster:
    """A coordinator and workers as separate processes; all of them are gone after `with`."""

    directory: Path
    workers: int = 2
    lease: str = "2s"
    worker_program: str = "espalier-worker"
    coordinator_program: str = "espalier-coordinator"
    worker_env: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    coordinator_env: Mapping[str, str] = field(default_factory=dict)
    coordinator_args: Sequence[str] = ()
    worker_args: Sequence[str] = ()
    address: str = ""
    coordinator: subprocess.Popen[bytes] | None = None
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __enter__(self) -> "Cluster":
        self.start_coordinator()
        for i in range(self.workers):
            self.start_worker(i)
        self.wait_for_workers(self.workers)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def start_coordinator(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        read_end, write_end = os.pipe()
        with (self.directory / "coordinator.log").open("ab") as log:
            self.coordinator = subprocess.Popen(
                [
                    BIN / self.coordinator_program,
                    "--listen",
                    self.address or "127.0.0.1:0",
                    "--port-fd",
                    str(write_end),
                    "--state-dir",
                    self.directory / "state",
                    "--lease",
                    self.lease,
                    *("--metrics-listen", "127.0.0.1:0"),
                    *self.coordinator_args,
                ],
                env={**os.environ, **self.coordinator_env},
                pass_fds=[write_end],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        os.close(write_end)
        text = b""
        deadline = time.monotonic() + 30
        while not text.endswith(b"\n"):
            ready, _, _ = select.select([read_end], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(read_end, 100) if ready else b""
            if not chunk:
                raise AssertionError(f"the coordinator did not start:\n{self.log('coordinator')}")
            text += chunk
        os.close(read_end)
        self.address = text.decode().strip()

    def start_worker(self, index: int) -> None:
        with (self.directory / f"worker-{index}.log").open("ab") as log:
            self.processes[index] = subprocess.Popen(
                [
                    BIN / self.worker_program,
                    "--coordinator",
                    self.address,
                    "--name",
                    f"w{index}",
                    *self.worker_args,
                ],
                env={**os.environ, **self.worker_env.get(index, {}), **self.worker_env.get(-1, {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait_for_workers(self, count: int, state: str = "IDLE", timeout: float = 60) -> None:
        service, _ = stubs()
        pb = importlib.import_module("espalier.v1.sparsification_service_pb2")
        resources = importlib.import_module("espalier.v1.resources_pb2")
        want = resources.Worker.State.Value(f"STATE_{state}")

        def enough() -> bool:
            workers = self.service().ListWorkers(pb.ListWorkersRequest(), timeout=10).workers
            return sum(worker.state == want for worker in workers) >= count

        assert service is not None
        wait_until(enough, timeout, lambda: f"{count} workers {state}\n" + self.all_logs())

    def all_logs(self) -> str:
        """What the processes said, and how those ended that have: a signal leaves no line in a log."""
        everyone = {f"worker-{i}": process for i, process in self.processes.items()}
        if self.coordinator:
            everyone["coordinator"] = self.coordinator
        ended = [f"--- {n} has ended: {p.returncode}" for n, p in everyone.items() if p.poll() is not None]
        logs = [f"--- {p.name}\n{p.read_text(errors='replace')[-4000:]}" for p in self.directory.glob("*.log")]
        return "\n".join([*ended, *logs])

    def channel(self) -> grpc.Channel:
        return grpc.insecure_channel(self.address, options=[("grpc.enable_http_proxy", 0)])

    def service(self) -> Any:
        service, _ = stubs()
        return service.SparsificationServiceStub(self.channel())

    def cli(self, *args: str | Path, check: bool = True, timeout: float = 120) -> Outcome:
        return espalier(*args, env={"ESPALIER_COORDINATOR": self.address}, check=check, timeout=timeout)

    def hold(self, path: Path, model: Path, workers: int) -> str:
        """Submits a run that is held, and waits until it has done its stages; its name."""
        arguments = ("--model", model, "--workers", str(workers), "--hold", "--wait", "--json")
        run = json.loads(self.cli("submit", path, *arguments).out)
        assert (run["state"], run["updates_done"]) == ("RUNNING", run["updates_total"])
        return str(run["name"])

    def signal_worker(self, index: int, number: signal.Signals) -> None:
        os.kill(self.processes[index].pid, number)

    def stop(self) -> None:
        everyone = [*self.processes.values(), *([self.coordinator] if self.coordinator else [])]
        for process in everyone:
            if process.poll() is None:
                process.kill()
        for process in everyone:
            process.wait()


def wait_until(condition: Any, timeout: float, what: Any, interval: float = 0.02) -> None:
    """Polls a condition of another process: there is nothing of ours to wait on in it."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"timed out: {what() if callable(what) else what}"
        select.select([], [], [], interval)


_STUBS: Path | None = None


def stubs() -> tuple[ModuleType, ModuleType]:
    """The generated modules of the two services, made once a process from the protos."""
    global _STUBS  # a cache of generated files
    if _STUBS is None:
        _STUBS = Path(tempfile.mkdtemp(prefix="espalier-stubs-"))
        from grpc_tools import protoc

        files = [str(p) for p in sorted((PROTO / "espalier" / "v1").glob("*.proto"))]
        well_known = str(Path(protoc.__file__).parent / "_proto")
        arguments = ["protoc", f"-I{PROTO}", f"-I{well_known}", f"--python_out={_STUBS}", f"--grpc_python_out={_STUBS}"]
        assert protoc.main([*arguments, *files]) == 0
        sys.path.insert(0, str(_STUBS))
    return (
        importlib.import_module("espalier.v1.sparsification_service_pb2_grpc"),
        importlib.import_module("espalier.v1.worker_service_pb2_grpc"),
    )


def messages(module: str) -> Any:
    stubs()
    return importlib.import_module(f"espalier.v1.{module}_pb2")


def error_info(error: grpc.RpcError) -> Any:
    """The ErrorInfo inside a status's details, as any grpcio-status user reads it."""
    from google.rpc import error_details_pb2
    from grpc_status import rpc_status

    status = rpc_status.from_call(error)
    assert status is not None
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    return info


def leftovers(parent: Path) -> Iterator[Path]:
    """Temporary directories of saves."""
    return (path for path in parent.iterdir() if ".espalier-" in path.name)
