"""`pykbroker quorum add` and `remove`, on three nodes; compat_tests/command_line tests the rest."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from pykbroker.__main__ import main
from pykbroker.testing import Cluster

pytestmark = pytest.mark.slow
PATIENCE_S = 120


def test_a_voter_leaves_and_comes_back(capsys: pytest.CaptureFixture[str]) -> None:
    with Cluster() as cluster:

        def asked(*words: str) -> Any:
            assert main([*words, "-b", cluster.bootstrap_servers, "-o", "json"]) == 0, capsys.readouterr().err
            return json.loads(capsys.readouterr().out)

        def wait_for(number: int, role: str) -> dict[str, Any]:
            deadline = time.monotonic() + PATIENCE_S
            while True:
                rows = {row["id"]: row for row in asked("quorum", "describe")["replicas"]}
                if number in rows and rows[number]["role"] == role:
                    found: dict[str, Any] = rows[number]
                    return found
                assert time.monotonic() < deadline, rows
                time.sleep(0.05)

        told = asked("quorum", "describe")
        assert {row["id"]: row["role"] in ("leader", "voter") for row in told["replicas"]} == dict.fromkeys(
            (1, 2, 3), True
        )
        chosen = wait_for(1 + told["leader"] % 3, "voter")
        number, directory = str(chosen["id"]), chosen["directory_id"]
        changed = {"id": chosen["id"], "directory_id": directory}
        assert asked("quorum", "remove", number) == {**changed, "outcome": "removed"}
        assert wait_for(chosen["id"], "observer")["directory_id"] == directory
        assert asked("quorum", "add", number, "--endpoint", chosen["endpoints"][0]) == {**changed, "outcome": "added"}
        assert wait_for(chosen["id"], "voter")["endpoints"] == chosen["endpoints"]
