"""`pykbroker dump-log` as a user runs it; compat_tests/on_disk compares its output with Apache Kafka's tool."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from pykbroker.__main__ import main
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_log.partition_log import PartitionLog
from testkit.logs.helpers import append, open_log
from testkit.nodes.processes import environment

LOG = "00000000000000000000.log"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    log: PartitionLog = open_log(OsDisk(), path=str(tmp_path / "t-0"))
    append(log, b"one", b"two", epoch=3)
    log.close(clean=True)
    return tmp_path / "t-0"


def dump(capfdbinary: pytest.CaptureFixture[bytes], *words: object) -> tuple[int, str, str]:
    status = main(["dump-log", *map(str, words)])
    said = capfdbinary.readouterr()
    return status, said.out.decode(), said.err.decode()


def test_records_are_printed(folder: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    status, out, err = dump(capfdbinary, "--files", folder / LOG, "--print-data-log")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[:2] == [f"Dumping {folder / LOG}", "Log starting offset: 0"]
    assert "lastOffset: 1 count: 2" in lines[2]
    assert lines[2].endswith("isvalid: true")
    assert lines[3].startswith("| offset: 0 CreateTime: ")
    assert lines[3].endswith("sequence: -1 headerKeys: [] payload: one")


@pytest.mark.slow
def test_verify_says_file_and_position(folder: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert dump(capfdbinary, "--verify", folder)[0] == 0
    with (folder / LOG).open("r+b") as file:
        file.seek(64)
        file.write(b"\xff")
    status, out, _ = dump(capfdbinary, "--verify", folder)
    assert status == 1
    assert out.splitlines()[0] == f"{folder / LOG}: position 0: the checksum does not match"
    assert out.splitlines()[-1].endswith(": 1 findings")
    status, out, _ = dump(capfdbinary, "--files", folder / LOG)
    assert (status, out.splitlines()[2].endswith("isvalid: false")) == (0, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--files with at least one file is needed"),
        (("--verify",), "--verify needs directories or files"),
        (("--files", "nowhere/" + LOG), "No such file or directory"),
        (("--files", LOG, "--remote-log-metadata-decoder"), "--remote-log-metadata-decoder is not supported"),
        (("--files", LOG, "--value-decoder-class", "my.Decoder"), "my.Decoder is not supported"),
    ],
)
def test_what_cannot_be_done_is_said(
    words: tuple[str, ...],
    said: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.chdir(folder)
    status, _, err = dump(capfdbinary, *words)
    assert status == 1
    assert said in err
    assert "Traceback" not in err


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--files",), ("--verify",)])
def test_g_a_file_that_is_cut_off_meanwhile_is_a_line_and_a_status(words: tuple[str, ...], tmp_path: Path) -> None:
    log = open_log(OsDisk(), path=str(tmp_path / "t-0"))
    for _ in range(3000):
        append(log, b"x" * 50)
    log.close(clean=True)
    path = tmp_path / "t-0" / LOG
    data = bytearray(path.read_bytes())
    size = len(data) // 3000
    for position in range(0, len(data), size):
        # The verifier prints a line for each batch, too.
        data[position + size - 1] ^= 1
    path.write_bytes(data)
    command = [sys.executable, "-m", "pykbroker", "dump-log", *words, str(path)]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while "position" not in (line := process.stdout.readline()):
            assert line, process.stderr.read()
        # It has mapped the file, and its output does not fit into a pipe.
        os.truncate(path, 0)
        _, err = process.communicate(timeout=60)
    assert err == f"pykbroker: {path}: became shorter while it was read, or its device failed (SIGBUS)\n"
    assert process.returncode == 1


@pytest.mark.slow
def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    """The output comes from another process, which must not survive when the command is killed."""
    log = open_log(OsDisk(), path=str(tmp_path / "t-0"))
    for _ in range(1000):
        append(log, b"x" * 50)
    log.close(clean=True)
    command = [sys.executable, "-m", "pykbroker", "dump-log", "--files", str(tmp_path / "t-0" / LOG)]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (child,) = psutil.Process(process.pid).children()
        process.kill()
        child.wait(timeout=30)


@pytest.mark.slow
def test_a_node_does_not_load_it() -> None:
    imported = "pykbroker.entry.start, pykbroker.node.node"
    code = f"import sys, {imported}; print([m for m in sys.modules if 'dump' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
