"""What `cmake --install` puts where, that it runs from there, and the units of systemd."""

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from harness import BIN, PROTO, bf16, espalier, make_checkpoint, recipe

ROOT = PROTO.parent
BUILD = BIN.parent
UNITS = ("espalier-coordinator.service", "espalier-worker@.service")


@pytest.fixture(name="prefix", scope="module")
def fixture_prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    prefix = tmp_path_factory.mktemp("install") / "espalier"
    subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], check=True, capture_output=True)
    return prefix


def test_an_installed_command_finds_its_programs_and_libraries(prefix: Path, tmp_path: Path) -> None:
    """Two workers: the module with LibTorch is loaded, from the installation alone."""
    random = np.random.default_rng(3)
    model = make_checkpoint(tmp_path / "m", {"l.weight": bf16(random.standard_normal((24, 16)).astype("<f4"))})
    path = recipe(tmp_path, "half", 'MagnitudePruningModifier: {targets: ["re:l.*weight"], final_sparsity: 0.5}')
    moved = prefix.rename(prefix.parent / "moved")
    try:
        done = espalier(
            *("run", path, "--model", model, "--output", tmp_path / "out", "--workers", "2", "--json"),
            program=moved / "bin/espalier",
        )
        assert json.loads(done.out)["params_summary"]["sparsity_percent"] == 50
        dynamic = subprocess.run(
            ["readelf", "-d", moved / "lib/espalier/libespalier_gloo.so"], check=True, capture_output=True, text=True
        ).stdout
        (searched,) = re.findall(r"(?:RPATH|RUNPATH).*\[(.*)\]", dynamic)
        for folder in searched.split(":"):
            assert Path(folder.replace("$ORIGIN", str(moved / "lib/espalier"))).is_dir(), folder
    finally:
        moved.rename(prefix)


def test_nothing_of_the_tests_is_installed(prefix: Path) -> None:
    assert sorted(path.name for path in (prefix / "bin").iterdir()) == [
        "espalier",
        "espalier-coordinator",
        "espalier-worker",
    ]
    for installed, source in [
        ("share/bash-completion/completions/espalier", "client/completions/espalier.bash"),
        ("share/espalier/prometheus/espalier.rules.yml", "deploy/prometheus/espalier.rules.yml"),
        ("share/espalier/grafana/dashboards/espalier.json", "deploy/grafana/dashboards/espalier.json"),
        ("share/espalier/proto/espalier/v1/plan.proto", "proto/espalier/v1/plan.proto"),
    ]:
        assert (prefix / installed).read_bytes() == (ROOT / source).read_bytes()


@pytest.mark.parametrize("unit", UNITS)
def test_units_are_what_systemd_takes(prefix: Path, tmp_path: Path, unit: str) -> None:
    """With the programs where they are installed here: systemd-analyze looks for them."""
    text = (prefix / "lib/systemd/system" / unit).read_text()
    (program,) = re.findall(r"^ExecStart=(\S+)", text, re.MULTILINE)
    path = tmp_path / unit
    path.write_text(text.replace(program, str(prefix / "bin" / Path(program).name)))
    done = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, check=False)
    ours = [line for line in done.stderr.splitlines() if "espalier" in line]
    assert (done.returncode, ours) == (0, []), done.stderr


@pytest.mark.parametrize("program", ["coordinator", "worker"])
def test_the_configuration_is_read_by_its_program(prefix: Path, tmp_path: Path, program: str) -> None:
    """Every line that is there, those that are commented out as well, up to the first value that is refused."""
    text = (prefix / "etc/espalier" / f"{program}.toml").read_text()
    every = re.sub(r"^# (?=[a-z-]+ = )", "", text, flags=re.MULTILINE)
    assert every != text
    config = tmp_path / "every.toml"
    config.write_text(every.replace("/models", str(tmp_path)) + 'stop-grace = "soon"\n')
    done = espalier("--config", config, program=prefix / f"bin/espalier-{program}", check=False)
    assert "--stop-grace: 'soon' is not a duration" in done.err
