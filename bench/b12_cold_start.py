"""B12: from starting `espalier run` to "masks committed", beyond the bare start of the three programs.

b12_cold_start.py BIN MODEL RECIPE
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TARGET_SECONDS = 3.0
RUNS = 5


def bare_start(binaries: Path) -> float:
    """Seconds in which the command, the coordinator and two workers, one after another, say their version."""
    start = time.perf_counter()
    for program in ("espalier", "espalier-coordinator", "espalier-worker", "espalier-worker"):
        subprocess.run([binaries / program, "--version"], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def to_committed(binaries: Path, model: Path, recipe: Path) -> float:
    """Seconds until the run says that its masks are selected, voted for and proved: the line of the phase `select`."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as output:
        arguments = ["--model", str(model), "--output", f"{output}/out", "--workers", "2"]
        command = [str(binaries / "espalier"), "run", str(recipe), *arguments]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True
        ) as run:
            assert run.stdout is not None
            committed = 0.0
            lines = []
            for line in run.stdout:
                lines.append(line)
                if not committed and line.startswith("select:"):
                    committed = time.perf_counter() - start
        if run.returncode != 0 or not committed:
            sys.exit(f"b12: the run did not say that its masks were committed:\n{''.join(lines)}")
    return committed


def main() -> None:
    """Prints one line: the difference, its target, and both sides."""
    binaries, model, recipe = map(Path, sys.argv[1:4])
    bare = statistics.median(bare_start(binaries) for _ in range(RUNS))
    ours = statistics.median(to_committed(binaries, model, recipe) for _ in range(RUNS))
    beyond = ours - bare
    verdict = "PASS" if beyond < TARGET_SECONDS else "FAIL"
    print(f"B12 cold-start beyond={beyond:.2f}s target<{TARGET_SECONDS:.2f}s {verdict} baseline={bare:.2f}s", end=" ")
    print(f"ours={ours:.2f}s")


main()
