"""A flipped bit in the metadata log of a process, in real files, as an operator sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykbroker_raft.intact import CUT_AT_KEY
from testkit.nodes.processes import Process, run
from testkit.nodes.wire import Wire, batch

pytestmark = pytest.mark.slow


def test_a_flipped_bit_ends_the_start_with_one_line(tmp_path: Path) -> None:
    data = tmp_path / "data"
    arguments = ["--data-dir", str(data), "--port", "0"]
    with Process(tmp_path / "log", *arguments) as node:
        with Wire(node.ready().address) as wire:
            for topic in ("first", "second"):
                wire.create(topic)
                wire.produce(topic, batch(b"kept"))
        assert node.interrupt() == 0
    log = data / "__cluster_metadata-0" / f"{0:020}.log"
    intact = log.read_bytes()
    at = intact.index(b"second")
    log.write_bytes(intact[:at] + bytes([intact[at] ^ 1]) + intact[at + 1 :])
    refused = run("start", *arguments)
    assert (refused.returncode, refused.stdout) == (1, "")
    said = [line for line in refused.stderr.splitlines() if line.startswith("pykbroker: ")]
    assert len(said) == 1
    assert str(log) in said[0]
    assert "Traceback" not in refused.stderr
    assert sorted(path.name for path in data.glob("*-0*")) == ["__cluster_metadata-0", "first-0", "second-0"]
    named = said[0].rpartition(f"{CUT_AT_KEY}=")[2].partition(":")[0]
    # `dump-log` finds the same place.
    position = said[0].partition("at position ")[2].partition(",")[0]
    assert f"{log}: position {position}: the checksum does not match" in run("dump-log", "--verify", str(data)).stdout
    with Process(tmp_path / "log", *arguments, "--set", f"{CUT_AT_KEY}={named}") as node:
        with Wire(node.ready().address) as wire:
            assert wire.values("first") == [b"kept"]
        assert node.interrupt() == 0
    lines = (tmp_path / "log").read_text()
    assert f"are given up, as {CUT_AT_KEY} says" in lines
    assert "second-0" in lines
