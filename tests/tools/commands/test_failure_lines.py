"""A command names the first failures, and counts the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykbroker.__main__ import main
from pykbroker.testing import Broker
from pykbroker.tools.commands.failure_lines import MOST, FailureLines


@pytest.mark.parametrize(("count", "last"), [(0, []), (MOST, []), (MOST + 3, ["pykbroker: 3 more records failed"])])
def test_the_end_of_the_block_counts_the_others(
    count: int, last: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with FailureLines("records failed") as lines:
        for number in range(count):
            lines.say(f"record {number}")
    shown = [f"pykbroker: record {number}" for number in range(min(count, MOST))]
    assert capsys.readouterr().err.splitlines() == shown + last


@pytest.mark.slow
def test_records_that_fail_get_ten_lines_and_a_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = tmp_path / "lines"
    # kafka-python cannot send a header without a value.
    lines.write_text('{"payload": "x", "headers": ["a", null]}\n' * 25 + '{"payload": "y"}\n')
    with Broker() as broker:
        assert main(["produce", "t", "-J", "-l", str(lines), "-b", broker.bootstrap_servers]) == 1
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[2].split(":")[0] for line in said[:10]] == [f" record {n}" for n in range(1, 11)]
    assert said[10] == "pykbroker: 15 more records failed"
    assert said[11:] == ["Sent 1 record (1 bytes) to t, and 25 failed."]
