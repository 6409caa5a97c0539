"""The Debian packages in a bare Debian 12: they install with what they name, run, and leave nothing behind."""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
from harness import bf16, make_checkpoint, recipe

ENGINE = os.environ["ENGINE"]
PACKAGES = Path(os.environ["ESPALIER_PACKAGES"])

DOCKERFILE = """
FROM debian:bookworm-slim
COPY . /work
RUN apt-get -q update \
 && apt-get -q -y install --no-install-recommends /work/espalier_*.deb /work/espalier-worker_*.deb \
 && espalier run /work/half.yaml --model /work/model --output /work/out --workers 2 \
 && espalier verify /work/out \
 && espalier-coordinator --version && espalier-worker --version \
 && test "$(stat -c %U:%a /etc/espalier/coordinator.toml)" = root:644 && id espalier \
 && apt-get -q -y purge espalier espalier-worker \
 && ! ls /usr/bin/espalier* /usr/lib/espalier /etc/espalier 2>/dev/null
"""


def test_packages_install_and_run_in_a_bare_system(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    make_checkpoint(tmp_path / "model", {"l.weight": bf16(random.standard_normal((24, 16)).astype("<f4"))})
    recipe(tmp_path, "half", 'MagnitudePruningModifier: {targets: ["re:l.*weight"], final_sparsity: 0.5}')
    debs = sorted(PACKAGES.glob("*.deb"))
    assert [deb.name.split("_")[0] for deb in debs] == ["espalier-worker", "espalier"]
    for deb in debs:
        shutil.copy(deb, tmp_path)
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    done = subprocess.run(
        [ENGINE, "build", "--no-cache", tmp_path], capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
