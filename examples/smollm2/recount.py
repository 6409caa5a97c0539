#!/usr/bin/env python3
"""Counts the zeros of a checkpoint with the safetensors package; compares them with what `espalier inspect` reports.

It shares no code with Espalier, so that two counts that agree were made in two ways.

Example:
    espalier inspect build/quickstart/smollm2-50 --json > report.json
    recount.py build/quickstart/smollm2-50 --report report.json
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from safetensors import deserialize

# The bits of each floating-point type without its sign: -0.0 is zero, NaN is not.
MAGNITUDE = {
    "BF16": (np.uint16, 0x7FFF),
    "F16": (np.uint16, 0x7FFF),
    "F32": (np.uint32, 0x7FFFFFFF),
    "F64": (np.uint64, 0x7FFFFFFFFFFFFFFF),
}


def count_zeros(directory: Path) -> dict[str, int]:
    """Zeros of each floating-point tensor in the directory's safetensors files."""
    zeros: dict[str, int] = {}
    for path in sorted(directory.glob("*.safetensors")):
        for name, tensor in deserialize(path.read_bytes()):
            if tensor["dtype"] in MAGNITUDE:
                bits, mask = MAGNITUDE[tensor["dtype"]]
                values = np.frombuffer(tensor["data"], dtype=bits)
                zeros[name] = values.size - int(np.count_nonzero(values & bits(mask)))
    return zeros


def differences(zeros: dict[str, int], report: Path) -> list[str]:
    """What the report says otherwise, one line for each parameter."""
    told = {name: row["zeros"] for name, row in json.loads(report.read_text(encoding="utf-8"))["params_info"].items()}
    return [
        f"{name}: counted {zeros.get(name, 'nothing')}, reported {told.get(name, 'nothing')}"
        for name in sorted(zeros.keys() | told.keys())
        if zeros.get(name) != told.get(name)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, help="a directory with .safetensors files")
    parser.add_argument("--report", type=Path, help="what `espalier inspect --json` printed of it")
    arguments = parser.parse_args()
    zeros = count_zeros(arguments.checkpoint)
    if not zeros:
        print(f"{parser.prog}: error: no weights in {arguments.checkpoint}/*.safetensors", file=sys.stderr)
        return 1
    wrong = differences(zeros, arguments.report) if arguments.report else []
    for line in wrong:
        print(line, file=sys.stderr)
    agreement = "" if not arguments.report else f", {len(zeros) - len(wrong)} of them as reported"
    print(f"{sum(zeros.values())} zeros counted in {len(zeros)} tensors{agreement}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
