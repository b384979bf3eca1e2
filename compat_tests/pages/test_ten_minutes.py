"""The commands of docs/balance.md and docs/segments.md lead from nothing to a picture, as they are written."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from compat_tests.pages.walk import Walk, blocks
from compat_tests.spark.segments.estates import checkpointed
from compat_tests.spark.session import short_lived
from testkit import needs
from testkit.clients import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True)
def _only_pykbroker(against: str) -> None:
    if against == "apache-kafka":
        pytest.skip("the pages start pykbroker")
    needs.python_package("matplotlib")


def spread(path: Path) -> dict[str, dict[str, Any]]:
    return {row["resource"]: row for row in json.loads(path.read_text())["spread"]}


def test_balance(tmp_path: Path) -> None:
    needs.python_package("numpy")
    instead = {"--port 9092": "--port 0", "/tmp/balance": str(tmp_path / "data")}
    with Walk(tmp_path, instead) as walk:
        walk.through("balance.md", "Ten minutes: from nothing to a picture")
    before, after = spread(tmp_path / "before.json"), spread(tmp_path / "after.json")
    for resource in ("leader_bytes_in", "replication_bytes_in", "leaders"):
        # Three brokers have a load and one has none.
        assert before[resource]["now"] > 0.5
        assert before[resource]["planned"] < before[resource]["now"] / 2
        assert after[resource]["now"] < before[resource]["now"] / 2
    [ran] = [said for line, said in walk.said.items() if "balance run" in line]
    assert "are as planned; 0 are left." in ran
    assert (tmp_path / "balance.png").read_bytes().startswith(PNG)


def test_segments(tmp_path: Path) -> None:
    needs.java()
    picture, data = tmp_path / "clicks.png", tmp_path / "data"
    instead = {
        "pykbroker start ": "pykbroker start --port 0 ",
        "/tmp/segments-data": str(data),
        "/tmp/clicks.png": str(picture),
    }

    def written_down() -> bool:
        return sum(end for (topic, _), end in checkpointed(data).items() if topic == "clicks") == 200_000

    written = partial(wait_until, written_down, "the checkpoint has every record")
    # The JVM of Spark is as small as in the other tests.
    with Walk(tmp_path, instead, written, {"JAVA_TOOL_OPTIONS": short_lived()}) as walk:
        walk.through("segments.md", "Ten minutes: from nothing to a picture")
    assert picture.read_bytes().startswith(PNG)


def test_what_is_not_run_is_what_makes_an_environment() -> None:
    for page in ("balance.md", "segments.md"):
        text = "".join(text for _, text in blocks(page, "Ten minutes: from nothing to a picture"))
        assert "pip install" in text
        assert "pykbroker start" in text
        assert "savefig" in text
