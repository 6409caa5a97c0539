"""deploy/slurm/espalier.sbatch, run as Slurm runs it, with stand-ins for Slurm's commands on this machine."""

import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from harness import BIN, PROTO, bf16, espalier, make_checkpoint, recipe, wait_until

SCRIPT = PROTO.parent / "deploy/slurm/espalier.sbatch"
# Starts the tasks as srun does: each with its local id, all ended by a signal, the first failure told.
SRUN = """#!/bin/bash
tasks=1
while [[ $1 == --* ]]; do [[ $1 == --ntasks=* ]] && tasks=${1#*=}; shift; done
for ((i = 0; i < tasks; ++i)); do SLURM_LOCALID=$i SLURM_PROCID=$i "$@" & done
jobs -p >"$SPOOL/tasks"
trap 'kill $(jobs -p) 2>/dev/null' TERM
code=0
for ((i = 0; i < tasks; ++i)); do wait -n || code=$?; done
exit $code
"""
SCANCEL = """#!/bin/bash
kill -TERM $(cat "$SPOOL/tasks")
"""


@pytest.fixture(name="slurm")
def fixture_slurm(tmp_path: Path) -> dict[str, str]:
    commands = tmp_path / "slurm"
    commands.mkdir()
    for name, text in (("srun", SRUN), ("scancel", SCANCEL)):
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{commands}:{BIN}:{os.environ['PATH']}",
        "SPOOL": str(commands),
        "TMPDIR": str(commands),
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_NTASKS": "2",
        "SLURM_CPUS_PER_TASK": "1",
        "SLURMD_NODENAME": "127.0.0.1",
    }


def alive(pid: str) -> bool:
    return Path(f"/proc/{pid}").exists()


def assert_nothing_is_left(slurm: dict[str, str]) -> None:
    spool = Path(slurm["SPOOL"])
    tasks = (spool / "tasks").read_text().split()
    assert len(tasks) == 2
    wait_until(lambda: not any(alive(task) for task in tasks), 20, lambda: tasks)
    assert sorted(path.name for path in spool.iterdir()) == ["scancel", "srun", "tasks"]


def model(path: Path, rows: int = 32) -> Path:
    random = np.random.default_rng(5)
    return make_checkpoint(path, {"l.weight": bf16(random.standard_normal((rows, 16)).astype("<f4"))})


HALF = 'MagnitudePruningModifier: {targets: ["re:l.*weight"], final_sparsity: 0.5}'


def test_a_job_prunes_and_ends_with_all_it_started(slurm: dict[str, str], tmp_path: Path) -> None:
    arguments = [recipe(tmp_path, "half", HALF), "--model", model(tmp_path / "m"), "--output", tmp_path / "out"]
    done = subprocess.run(
        ["bash", SCRIPT, *arguments], env=slurm, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    espalier("verify", tmp_path / "out")
    assert "50" in espalier("inspect", tmp_path / "out").out
    assert_nothing_is_left(slurm)


def test_a_job_that_cannot_prune_says_why_and_fails(slurm: dict[str, str], tmp_path: Path) -> None:
    path = recipe(tmp_path, "none", HALF.replace("re:l.*", "re:nothing"))
    arguments = [path, "--model", model(tmp_path / "m"), "--output", tmp_path / "out"]
    done = subprocess.run(
        ["bash", SCRIPT, *arguments], env=slurm, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 3, done.stdout + done.stderr
    assert "matches no parameter of the model" in done.stderr
    assert_nothing_is_left(slurm)


def test_the_time_limit_cancels_the_run_in_order(slurm: dict[str, str], tmp_path: Path) -> None:
    """A held run waits for ever; SIGTERM to the batch script, as --signal=B:TERM sends, ends it and leaves nothing."""
    arguments = [
        recipe(tmp_path, "half", HALF),
        "--model",
        model(tmp_path / "m"),
        "--output",
        tmp_path / "out",
        "--hold",
    ]
    log = tmp_path / "job.log"
    with log.open("w") as out, subprocess.Popen(["bash", SCRIPT, *arguments], env=slurm, stdout=out, stderr=out) as job:
        try:
            wait_until(lambda: "held" in log.read_text(), 60, log.read_text)
            job.send_signal(signal.SIGTERM)
            assert job.wait(60) == 143, log.read_text()
        finally:
            job.kill()
    assert not (tmp_path / "out").exists()
    assert_nothing_is_left(slurm)
