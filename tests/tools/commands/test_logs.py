"""`pykbroker logs`: whole directories, findings as JSON; test_dump_log tests the output for a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pykbroker.__main__ import main
from pykbroker_log.os_disk.disk import OsDisk
from testkit.logs.helpers import append, open_log

LOG = "00000000000000000000.log"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with one record in each of two partitions, and with files that do not belong to a log."""
    for name, value in (("t-1", b"two"), ("t-0", b"one")):
        log = open_log(OsDisk(), path=str(tmp_path / name))
        append(log, value)
        log.close(clean=True)
    (tmp_path / "notes.txt").write_text("not of the broker")
    return tmp_path


def run(capfdbinary: pytest.CaptureFixture[bytes], *words: object) -> tuple[int, str, str]:
    status = main(["logs", *map(str, words)])
    said = capfdbinary.readouterr()
    return status, said.out.decode(), said.err.decode()


def dumped(out: str) -> list[str]:
    return [line.removeprefix("Dumping ") for line in out.splitlines() if line.startswith("Dumping ")]


@pytest.mark.slow
def test_a_directory_is_dumped_in_the_order_of_names(
    directory: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    status, out, err = run(capfdbinary, "dump", directory, "--print-data-log")
    assert (status, err) == (0, "")
    assert [Path(path).relative_to(directory) for path in dumped(out) if path.endswith(".log")] == [
        Path("t-0") / LOG,
        Path("t-1") / LOG,
    ]
    assert {Path(path).suffix for path in dumped(out)} <= {".log", ".index", ".timeindex", ".snapshot", ".txnindex"}
    assert out.index("payload: one") < out.index("payload: two")
    assert "notes.txt" not in out
    one = run(capfdbinary, "dump", directory / "t-1" / LOG, "--print-data-log")
    assert dumped(one[1]) == [str(directory / "t-1" / LOG)]
    assert one[1] in out


@pytest.mark.slow
def test_the_old_name_prints_the_same(directory: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    path = directory / "t-0" / LOG
    status, out, err = run(capfdbinary, "dump", "--deep-iteration", path)
    assert main(["dump-log", "--files", str(path), "--deep-iteration"]) == status == 0
    assert capfdbinary.readouterr() == (out.encode(), err.encode())
    assert main(["--help"]) == 0
    help_text = capfdbinary.readouterr().out
    assert b"logs" in help_text
    assert b"dump-log" not in help_text


@pytest.mark.slow
def test_findings_as_json(directory: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    status, out, err = run(capfdbinary, "verify", directory / "t-0", directory / "t-1", "-o", "json")
    assert (status, json.loads(out)["findings"], err) == (0, [], "")
    path = directory / "t-0" / LOG
    with path.open("r+b") as file:
        file.seek(64)
        file.write(b"\xff")
    status, out, _ = run(capfdbinary, "verify", directory / "t-0", directory / "t-1", "-o", "json")
    assert status == 1
    told = json.loads(out)
    assert told["findings"][0]["path"] == str(path)
    assert told["findings"][0]["position"] == 0
    assert told["summary"].endswith("1 findings")
    status, out, _ = run(capfdbinary, "verify", directory / "t-0")
    assert status == 1
    assert f"{path}: position 0: the checksum does not match" in out.splitlines()


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("dump",), 2, "Missing argument"),
        (("verify",), 2, "Missing argument"),
        (("dump", "/nowhere/00000000000000000000.log"), 1, "/nowhere/00000000000000000000.log: No such file"),
        (("dump", "x", "--max-bytes", "y"), 2, "Invalid value for '--max-bytes'"),
    ],
)
def test_what_is_refused(
    words: tuple[str, ...], status: int, said: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    found, _, err = run(capfdbinary, *words)
    assert found == status
    (line,) = err.splitlines()
    assert line.startswith(f"pykbroker: {said}")


def test_a_path_that_does_not_exist_is_a_finding(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    status, out, _ = run(capfdbinary, "verify", "/nowhere")
    assert status == 1
    assert out.splitlines()[0] == "/nowhere: does not exist"
