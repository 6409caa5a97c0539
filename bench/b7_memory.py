"""B7, memory: the peak of each worker's resident memory over a whole `espalier run`, LibTorch and Gloo included.

b7_memory.py BIN MODEL RECIPE
"""

import shutil
import subprocess
import sys
import time
from pathlib import Path

WORKERS = 2
BEYOND_SHARD = 0.15
FIXED_BYTES = 400e6
POLL_SECONDS = 0.01


def peaks_of_workers(run: int) -> dict[int, int]:
    """Peak resident bytes (VmHWM) of each worker that is a child of the command now."""
    peaks = {}
    try:
        children = Path(f"/proc/{run}/task/{run}/children").read_text(encoding="ascii").split()
        for child in map(int, children):
            if "espalier-worker" in Path(f"/proc/{child}/cmdline").read_text(encoding="utf-8"):
                status = Path(f"/proc/{child}/status").read_text(encoding="utf-8")
                peaks[child] = int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (FileNotFoundError, ProcessLookupError, IndexError):
        pass  # it ended between two looks
    return peaks


def main() -> None:
    """Prints one line: the highest peak against what a worker may take."""
    binaries, model, recipe = map(Path, sys.argv[1:4])
    output = model.parent / f"{model.name}-pruned"  # beside the model: it is as large
    command = [
        str(binaries / "espalier"),
        "run",
        str(recipe),
        "--model",
        str(model),
        "--output",
        str(output),
        "--overwrite",
    ]
    peaks: dict[int, int] = {}
    try:
        with subprocess.Popen(
            [*command, "--workers", str(WORKERS)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as run:
            while run.poll() is None:
                for worker, peak in peaks_of_workers(run.pid).items():
                    peaks[worker] = max(peak, peaks.get(worker, 0))
                time.sleep(POLL_SECONDS)
            if run.returncode != 0 or len(peaks) != WORKERS:
                sys.exit(f"b7_memory: the run failed:\n{run.stderr.read() if run.stderr else ''}")
    finally:
        shutil.rmtree(output, ignore_errors=True)
    model_bytes = sum(file.stat().st_size for file in model.glob("*.safetensors"))
    limit = model_bytes / WORKERS * (1 + BEYOND_SHARD) + FIXED_BYTES
    peak = max(peaks.values())
    print(f"B7 memory of a worker W={WORKERS} ratio={limit / peak:.2f} target=>=1.00", end=" ")
    print(f"{'PASS' if peak <= limit else 'FAIL'} baseline={limit / 1e9:.3f}GB ours={peak / 1e9:.3f}GB")


main()
