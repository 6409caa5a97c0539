"""The command as people use it: held runs, interrupts, lost children, terminals, and addresses that do not answer."""

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from harness import (
    BIN,
    PROTO,
    Cluster,
    Outcome,
    Tensor,
    bf16,
    espalier,
    expect_per_tensor,
    leftovers,
    make_checkpoint,
    read_checkpoint,
    recipe,
    stored_pruned,
    wait_until,
)

HALF = 'MagnitudePruningModifier: {targets: ["re:l.*weight"], final_sparsity: 0.5}'
REMOTE: dict[str, tuple[str, ...]] = {
    "submit": ("recipe.yaml", "--model", "m"),
    "watch": ("runs/a",),
    "runs": (),
    "workers": (),
    "report": ("runs/a",),
    "param": ("runs/a", "w", "-o", "w.npy"),
    "mask": ("runs/a", "w", "-o", "w.npy"),
    "save": ("runs/a", "out"),
    "finish": ("runs/a",),
    "cancel": ("runs/a",),
    "delete": ("runs/a",),
    "health": (),
}


def small(directory: Path) -> Path:
    random = np.random.default_rng(7)
    return make_checkpoint(
        directory, {f"l{i}.weight": bf16(random.standard_normal((24, 13)).astype("<f4")) for i in range(4)}
    )


def children_of(pid: int) -> list[int]:
    return [int(c) for f in Path(f"/proc/{pid}/task").glob("*/children") for c in f.read_text().split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Command:
    """`espalier run` in the background; its standard error and output go to files."""

    def __init__(self, directory: Path, *arguments: str | Path) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)
        with (directory / "out").open("w") as out, (directory / "err").open("w") as err:
            self.process = subprocess.Popen(
                [BIN / "espalier", "run", *map(str, arguments)],
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "TMPDIR": str(directory)},
            )
        self.children: list[int] = []

    def err(self) -> str:
        return (self.directory / "err").read_text()

    def wait_for_children(self, count: int) -> None:
        def enough() -> bool:
            self.children = children_of(self.process.pid)
            return len(self.children) >= count

        wait_until(enough, 30, "children did not start")

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.err() or self.process.poll() is not None, 60, self.err)
        assert text in self.err(), self.err()

    def address(self) -> str:
        self.wait_for("coordinator on ")
        return self.err().split("coordinator on ")[1].split()[0]

    def end(self, timeout: float = 60) -> Outcome:
        code = self.process.wait(timeout=timeout)
        wait_until(lambda: not any(alive(pid) for pid in self.children), 5, "children were left running")
        return Outcome(code, (self.directory / "out").read_text(), self.err())

    def kept(self) -> list[Path]:
        return list(self.directory.glob("espalier-run-*"))


@contextmanager
def held(directory: Path) -> Iterator[tuple[Command, str, dict[str, str]]]:
    """A held run of two workers, its stages done: the command, the run, the environment of other commands."""
    path = recipe(directory, "half", HALF)
    command = Command(
        directory / "c",
        *(path, "--model", small(directory / "model"), "--output", directory / "out"),
        *("--workers", "2", "--hold", "--listen", "127.0.0.1:0"),
    )
    try:
        command.wait_for_children(3)
        env = {"ESPALIER_COORDINATOR": command.address()}
        command.wait_for("runs/")

        def held_now() -> bool:
            runs = json.loads(espalier("runs", "--json", env=env).out)
            return bool(runs) and runs[0]["state"] == "RUNNING" and runs[0]["updates_done"] == 1

        wait_until(held_now, 60, command.err)
        yield command, json.loads(espalier("runs", "--json", env=env).out)[0]["name"], env
    finally:
        command.process.kill()
        command.process.wait()


def test_a_held_run_answers_and_is_finished(tmp_path: Path) -> None:
    with held(tmp_path) as (command, name, env):
        health = espalier("health", env=env)
        assert "SERVING" in health.out
        assert espalier("workers", env=env).out.count("BUSY") == 2
        reports = [
            json.loads(espalier("report", name, "--mode", mode, "--json", env=env).out)
            for mode in ("shard-counts", "gather")
        ]
        for report in reports:
            report.pop("provenance")
        assert reports[0] == reports[1]
        assert reports[0]["params_summary"]["sparsity_percent"] == 50.0

        model = read_checkpoint(tmp_path / "model")
        for i in range(4):
            weight = f"l{i}.weight"
            pruned = expect_per_tensor(model[weight], "0.5")
            expected = np.where(pruned, 0, model[weight].values.reshape(-1)).reshape(24, 13)
            done = espalier("param", name, weight, "-o", tmp_path / "p.npy", env=env)
            assert "uint16" in done.err
            raw = np.load(tmp_path / "p.npy")
            assert (raw.dtype, raw.shape) == (np.dtype("u2"), (24, 13))
            np.testing.assert_array_equal(raw, expected)
            espalier("param", name, weight, "-o", tmp_path / "f.npy", "--float32", env=env)
            wide = np.load(tmp_path / "f.npy")
            np.testing.assert_array_equal(wide.view("u4"), expected.astype("u4") << 16)
            espalier("mask", name, weight, "-o", tmp_path / "m.npy", env=env)
            packed = np.load(tmp_path / "m.npy")
            assert packed.shape == (24, 2)
            np.testing.assert_array_equal(stored_pruned(Tensor("U8", packed), (24, 13)), pruned)

        refused = espalier("param", name, "l9.weight", "-o", tmp_path / "no.npy", env=env, check=False)
        assert (refused.code, (tmp_path / "no.npy").exists()) == (2, False)
        assert "PARAMETER_NOT_FOUND" in refused.err

        espalier("save", name, tmp_path / "draft", env=env)
        assert espalier("verify", tmp_path / "draft").code == 0
        again = espalier("save", name, tmp_path / "draft", env=env, check=False)
        assert again.code == 2
        assert "OUTPUT_EXISTS" in again.err
        # A finish that cannot save loses nothing: what stands in its way is named, and the run is held as before.
        (tmp_path / "out").mkdir()
        refused = espalier("finish", name, "--wait", env=env, check=False)
        assert refused.code == 2, refused
        assert "OUTPUT_EXISTS" in refused.err
        assert "held again" in command.err()
        (tmp_path / "out").rmdir()
        espalier("finish", name, "--wait", env=env)
        done = command.end()
        assert done.code == 0, done
        assert command.kept() == []
        assert espalier("verify", tmp_path / "out").code == 0
        assert (tmp_path / "out/model.safetensors").read_bytes() == (tmp_path / "draft/model.safetensors").read_bytes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_hold_saves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with held(tmp_path) as (command, _, _):
        command.process.send_signal(number)
        done = command.end()
        assert done.code == 128 + number
        assert "CANCELLED" in done.err
        assert not (tmp_path / "out").exists()
        assert command.kept() == []


def test_cancelled_by_another(tmp_path: Path) -> None:
    with held(tmp_path) as (command, name, env):
        espalier("cancel", name, "--reason", "wrong recipe", env=env)
        done = command.end()
        assert done.code == 1
        assert "wrong recipe" in done.err
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_worker_ends_the_command(tmp_path: Path, number: signal.Signals) -> None:  # known-bugs 35
    path = recipe(tmp_path, "half", HALF)
    command = Command(
        tmp_path / "c",
        *(path, "--model", small(tmp_path / "model"), "--output", tmp_path / "out", "--workers", "2"),
        *("--hold", "--listen", "127.0.0.1:0", "--lease", "2s"),
    )
    command.wait_for_children(3)
    command.wait_for(" is held")
    worker = next(pid for pid in command.children if b"worker-1" in Path(f"/proc/{pid}/cmdline").read_bytes())
    os.kill(worker, number)
    start = time.monotonic()
    done = command.end()
    assert time.monotonic() - start < 30
    assert done.code == 1, done
    assert "WORKER_LOST" in done.err
    assert "worker-1" in done.err
    if number == signal.SIGKILL:
        assert "killed by signal 9" in done.err
    assert not (tmp_path / "out").exists()
    (state,) = command.kept()
    assert str(state) in done.err
    assert (state / "worker-1.log").exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_coordinator_ends_the_command(tmp_path: Path, number: signal.Signals) -> None:
    with held(tmp_path) as (command, _, _):
        coordinator = next(
            pid for pid in command.children if b"espalier-coordinator" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
        os.kill(coordinator, number)
        done = command.end(timeout=90)
        assert done.code in (1, 5), done
        assert not (tmp_path / "out").exists()


def test_a_killed_command_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    with held(tmp_path) as (command, _, _):
        command.process.kill()
        command.end()
        (left,) = command.kept()
        assert (left / "coordinator.log").exists()
    path = recipe(tmp_path, "half", HALF)
    again = Command(tmp_path / "c", path, "--model", tmp_path / "model", "--output", tmp_path / "out")
    assert again.end().code == 0
    assert again.kept() == []


def test_refusals_come_before_any_work_and_leave_nothing(tmp_path: Path) -> None:
    model = small(tmp_path / "model")
    bad = recipe(tmp_path, "bad", 'MagnitudePruningModifier: {targets: ["re:l.*"], final_sparsty: 0.5}')
    command = Command(tmp_path / "c", bad, "--model", model, "--output", tmp_path / "out")
    done = command.end()
    assert done.code == 3
    assert re.search(r"^espalier: .*final_sparsity.*\(RECIPE_INVALID\)$", done.err, re.MULTILINE | re.DOTALL)
    assert done.out == ""
    assert command.kept() == []


def test_a_taken_address_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        path = recipe(tmp_path, "half", HALF)
        command = Command(
            tmp_path / "c",
            *(path, "--model", small(tmp_path / "model"), "--output", tmp_path / "out", "--listen", address),
        )
        done = command.end()
        assert done.code == 5, done
        assert f"espalier: cannot listen at {address}: " in done.err
        assert done.err.endswith("(CANNOT_BIND)\n")
        assert command.kept() == []


BAD_OPTIONS = {
    "listen": ("--listen", "127.0.0.1:99999"),
    "lease": ("--lease", "soon"),
    "shorter than a heartbeat": ("--lease", "1ms"),
}


@pytest.mark.parametrize("what", BAD_OPTIONS)
def test_bad_options_are_refused_before_anything_starts(tmp_path: Path, what: str) -> None:
    option, value = BAD_OPTIONS[what]
    shared = (recipe(tmp_path, "half", HALF), "--model", tmp_path, "--output", tmp_path / "out")
    for done in (
        espalier("run", *shared, option, value, check=False),
        espalier(option, value, check=False, program=BIN / "espalier-coordinator", timeout=30),
    ):
        assert done.code == 2, done
        assert f"{option}: '{value}'" in done.err
        assert "REQUEST_INVALID" in done.err


def test_a_worker_that_cannot_start_says_why_in_one_line() -> None:
    for option, value in (
        ("--coordinator", "nowhere"),
        ("--exit-on-disconnect-after", "never"),
        ("--name", "A_b"),
        ("--device", "cuda"),  # of a build for CPUs, or where no GPU is
    ):
        done = espalier(option, value, check=False, program=BIN / "espalier-worker", timeout=30)
        assert done.code == 2, done
        assert done.err.startswith(f"espalier-worker: REQUEST_INVALID: {option}")
        assert done.err.count("\n") == 1


@pytest.mark.parametrize("program", ["espalier-coordinator", "espalier-worker"])
def test_the_reference_describes_every_option_of_the_programs(program: str) -> None:
    page = (PROTO.parent / "docs/reference.md").read_text()
    section = page.split(f"\n### {program}\n")[1].split("\n## ")[0].split("\n### ")[0]
    described = set(re.findall(r"^\| `(--[a-z-]+)", section, re.MULTILINE))
    offered = set(re.findall(r"^  (?:-h,)?(--[a-z-]+)", espalier("--help", program=BIN / program).out, re.MULTILINE))
    assert described == offered - {"--help", "--version"}


def test_a_service_is_told_by_environment_and_file_too(tmp_path: Path) -> None:
    config = tmp_path / "espalier.toml"
    config.write_text('listen = "127.0.0.1:99999"\nlog-format = "json"\nlease = "soon"\nmetrics-listen = "off"\n')
    env = {"ESPALIER_CONFIG": str(config), "ESPALIER_LISTEN": "127.0.0.1:0"}
    done = espalier(program=BIN / "espalier-coordinator", env=env, check=False, timeout=30)
    assert done.code == 2, done  # the environment's address is good, the file's lease is not
    assert "--lease: 'soon'" in done.err
    process = subprocess.Popen(
        [BIN / "espalier-coordinator", "--lease", "15s"], env={**os.environ, **env}, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    first = json.loads(process.stderr.readline())
    listening = json.loads(process.stderr.readline())
    process.terminate()
    assert process.wait(timeout=20) == 0
    process.stderr.close()
    assert (first["level"], first["event"]) == ("warning", "no_state_dir")
    assert (listening["process"], listening["event"], listening["metrics"]) == ("coordinator", "listening", "off")


def test_ten_at_once(tmp_path: Path) -> None:  # known-bugs 38
    model, path = small(tmp_path / "model"), recipe(tmp_path, "half", HALF)
    commands = [
        Command(tmp_path / f"c{i}", path, "--model", model, "--output", tmp_path / f"out{i}", "--json")
        for i in range(10)
    ]
    for i, command in enumerate(commands):
        done = command.end(timeout=180)
        assert done.code == 0, done
        assert json.loads(done.out)["params_summary"]["sparsity_percent"] == 50.0
        assert (tmp_path / f"out{i}/model.safetensors").exists()
    assert list(leftovers(tmp_path)) == []


@pytest.mark.parametrize("name", REMOTE)
def test_silent_addresses_are_given_up(tmp_path: Path, name: str) -> None:  # known-bugs 64
    (tmp_path / "recipe.yaml").write_text("a: 1")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        start = time.monotonic()
        done = subprocess.run(
            [BIN / "espalier", name, *REMOTE[name], "--coordinator", address],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 5, done
        assert address in done.stderr
        assert "UNREACHABLE" in done.stderr
        assert time.monotonic() - start < 10


def test_usage_errors() -> None:
    for arguments in ((), ("prune",), ("run",), ("report", "a", "--mode", "fast"), ("runs", "--limit", "0")):
        done = espalier(*arguments, check=False)
        assert done.code == 2, (arguments, done)
        assert done.err.startswith("espalier: ")
        assert done.err.count("\n") == 1
    assert espalier("runs", "--coordinator", "nowhere", check=False).code == 2


def test_unknown_runs(tmp_path: Path) -> None:
    with Cluster(tmp_path / "c", workers=0) as cluster:
        for command in ("watch", "report", "finish", "cancel", "delete"):
            done = cluster.cli(command, "runs/nothing", check=False)
            assert done.code == 2, done
            assert "RUN_NOT_FOUND" in done.err
        done = cluster.cli("submit", recipe(tmp_path, "half", HALF), "--model", small(tmp_path / "model"), check=False)
        assert done.code == 5
        assert "WORKERS_MISSING" in done.err


def test_submit_watch_and_json(tmp_path: Path) -> None:
    model, path = small(tmp_path / "model"), recipe(tmp_path, "half", HALF)
    with Cluster(tmp_path / "c", workers=2) as cluster:
        arguments = (path, "--model", model, "--output", tmp_path / "out", "--workers", "2")
        valid = cluster.cli("submit", *arguments, "--validate-only")
        assert "4 of 4" in valid.out
        assert json.loads(cluster.cli("runs", "--json").out) == []
        name = cluster.cli("submit", *arguments).out.strip()
        events = [json.loads(line) for line in cluster.cli("watch", name, "--json").out.splitlines()]
        revisions = [event["revision"] for event in events if event["type"] not in ("Bookmark", "Progress")]
        assert revisions == list(range(revisions[0], revisions[0] + len(revisions)))
        assert events[-1]["run"]["state"] == "SUCCEEDED"
        resumed = cluster.cli("watch", name, "--json", "--from", str(revisions[0])).out.splitlines()
        assert [json.loads(line)["revision"] for line in resumed] == revisions[1:]
        assert "SUCCEEDED" in cluster.cli("watch", name).out
        last = json.loads(cluster.cli("report", name, "--json").out)
        assert last["params_summary"]["sparsity_percent"] == 50.0
        assert cluster.cli("report", name, "--mode", "gather", check=False).code == 2
        assert cluster.cli("cancel", name, check=False).code == 2
        cluster.cli("delete", name)
        assert json.loads(cluster.cli("runs", "--json").out) == []


def test_bars_on_a_terminal(tmp_path: Path) -> None:
    path = recipe(tmp_path, "half", HALF)
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
    environment.pop("NO_COLOR", None)
    command = subprocess.Popen(
        [BIN / "espalier", "run", path, "--model", small(tmp_path / "model"), "--output", tmp_path / "out"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment,
    )
    os.close(slave)
    data = b""
    deadline = time.monotonic() + 60
    while select.select([master], [], [], max(0.0, deadline - time.monotonic()))[0]:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        data += chunk
    os.close(master)
    assert command.wait(timeout=30) == 0
    text = data.decode()
    assert "━" in text
    for phase in ("load", "select", "save"):
        assert f"  {phase}" in text, text
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l"), "the cursor stays hidden"
    assert "50.00" in text
