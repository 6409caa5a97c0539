"""The zsh completion, typed at a real zsh. That of bash is called by client_cli_app_test."""

import os
import pty
import select
import time
from pathlib import Path

import pytest

COMPLETIONS = Path(__file__).parents[2] / "client" / "completions"
PROMPT = "espalier-test> "


class Zsh:
    """An interactive zsh without anybody's settings, at the other end of a terminal."""

    def __init__(self) -> None:
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execvpe("zsh", ["zsh", "-f", "-i"], {"PATH": os.environ["PATH"], "TERM": "dumb", "PS1": PROMPT})
        self.shown = b""

    def type(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + 60
        while text.encode() not in self.shown:
            ready, _, _ = select.select([self.terminal], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no {text!r} in {self.shown!r}"
            self.shown += os.read(self.terminal, 4096)
        self.shown = self.shown.partition(text.encode())[2]

    def close(self) -> None:
        os.close(self.terminal)
        os.waitpid(self.pid, 0)


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("espalier wor", "espalier workers "),
        ("espalier run --max-sh", "espalier run --max-shard-size "),
        ("espalier report --mode ga", "espalier report --mode gather "),
        ("espalier completion z", "espalier completion zsh "),
        ("espalier run first.yaml /proc/cpuin", "espalier run first.yaml /proc/cpuinfo "),
    ],
)
def test_zsh_completes(typed: str, completed: str) -> None:
    zsh = Zsh()
    try:
        # The shell's echo of this line has the quotes, its answer has not.
        zsh.type(f"fpath=({COMPLETIONS} $fpath); autoload -Uz compinit; compinit -u -D; echo lo''aded\n")
        zsh.wait_for("loaded\r\n")
        zsh.wait_for(PROMPT)
        zsh.type(typed + "\t")
        zsh.wait_for(completed)
    finally:
        zsh.close()
