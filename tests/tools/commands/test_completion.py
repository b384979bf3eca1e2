"""`pykbroker generate completion`, and its results in a shell; compat_tests/command_line tests names of a cluster."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from pykbroker.__main__ import main
from pykbroker.entry.own_commands import COMPLETE_VARIABLE
from pykbroker.tools.commands.main import program
from testkit.nodes.processes import environment


def completed(words: list[str], begun: str) -> list[str]:
    shell = ShellComplete(program(), {}, "pykbroker", COMPLETE_VARIABLE)
    return [item.value for item in shell.get_completions(words, begun)]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script(shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["generate", "completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"{COMPLETE_VARIABLE}={shell}_complete" in script
    assert main(["generate", "completion", shell, "-o", str(tmp_path / "script")]) == 0
    assert (tmp_path / "script").read_text() == script
    path = shutil.which(shell)
    if path is not None:
        option = "--no-execute" if shell == "fish" else "-n"
        assert subprocess.run([path, option, tmp_path / "script"], check=False, timeout=60).returncode == 0


@pytest.mark.slow
def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    script = tmp_path / "script"
    assert main(["generate", "completion", "bash", "-o", str(script)]) == 0
    # The shell runs the first word of the line, without arguments.
    pykbroker = tmp_path / "pykbroker"
    pykbroker.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pykbroker "$@"\n')
    pykbroker.chmod(0o755)

    def answer(*words: str) -> list[str]:
        line = " ".join(f"'{word}'" for word in ("pykbroker", *words))
        asked = (
            f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; "
            f"_pykbroker_completion '{pykbroker}'; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        )
        # bash complains about `compopt` outside of a completion, which is not our error.
        done = subprocess.run(
            ["bash", "-c", asked], env=environment(), capture_output=True, text=True, check=False, timeout=120
        )
        return done.stdout.split()

    assert answer("sto") == ["storage"]
    assert answer("storage", "f") == ["format", "feature-dependencies"]
    assert answer("start", "--eph") == ["--ephemeral"]
    assert answer("configs", "describe", "cl") == ["client-metrics"]


def test_options_and_values() -> None:
    assert completed([], "gro") == ["groups"]
    assert completed(["groups"], "de") == ["describe", "delete"]
    targets = ["--to-earliest", "--to-latest", "--to-current", "--to-offset", "--to-datetime"]
    assert completed(["groups", "reset"], "--to-") == targets
    assert completed(["topics", "list", "-o"], "") == ["table", "json"]


def test_without_a_cluster_there_are_no_names(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{held.getsockname()[1]}"
        assert completed(["topics", "describe", "-b", closed], "t") == []
        assert completed(["groups", "describe", "-b", closed, "-X", "security.protocol=nonsense"], "t") == []
    assert capsys.readouterr() == ("", "")
