"""`kafka-metadata-quorum` and `kafka-features` against three nodes: who votes, and how that is changed."""

from __future__ import annotations

import json
import re
from pathlib import Path

from compat_tests.kafka_tools.conftest import TOOLS
from compat_tests.oracle.kafka import kafka_libs, run_tool
from tests.node.nodes import eventually
from tests.node.trio import Trio

MAIN = f"{TOOLS}.MetadataQuorumCommand"


def status(*where: str) -> dict[str, str]:
    said = run_tool(MAIN, [*where, "describe", "--status"]).stdout
    return dict(re.findall(r"^(\w+):\s+(.*?)\s*$", said, re.M))


def test_voters_are_described_and_removed(tmp_path: Path) -> None:
    kafka_libs()
    trio = Trio(tmp_path, "dynamic", {})
    with trio:
        trio.serving(1, 2, 3)
        server = ("--bootstrap-server", trio.bootstrap)
        controller = ("--bootstrap-controller", f"127.0.0.1:{trio.controller_ports[1]}")
        for where in (server, controller):
            found = status(*where)
            voters = {voter["id"]: voter for voter in json.loads(found["CurrentVoters"])}
            assert {number: voter["directoryId"] for number, voter in voters.items()} == trio.voters()
            assert [voters[number]["endpoints"] for number in (1, 2, 3)] == [
                [f"CONTROLLER://127.0.0.1:{trio.controller_ports[number]}"] for number in (1, 2, 3)
            ]
            assert int(found["LeaderId"]) == trio.active()
            assert found["CurrentObservers"] == "[]"
        follower = next(number for number in (2, 3) if number != trio.active())
        directory = trio.voters()[follower]
        gone = ["--controller-id", str(follower), "--controller-directory-id", directory]
        said = run_tool(MAIN, [*server, "remove-controller", *gone]).stdout
        assert said.strip() == f"Removed  KRaft controller {follower} with directory id {directory}"
        assert set(trio.voters()) == {1, 2, 3} - {follower}


def test_configured_voters_become_voters_of_the_log(tmp_path: Path) -> None:
    kafka_libs()
    trio = Trio(tmp_path, "static", {})
    with trio:
        trio.serving(1, 2, 3)
        server = ("--bootstrap-server", trio.bootstrap)
        raised = [*server, "upgrade", "--feature", "kraft.version=1"]

        def is_raised() -> bool:
            return run_tool(f"{TOOLS}.FeatureCommand", raised, check=False).returncode == 0

        eventually("kraft.version is raised", is_raised)
        voters = json.loads(status(*server)["CurrentVoters"])
        assert {voter["id"] for voter in voters} == {1, 2, 3}
        assert "A" * 22 not in {voter["directoryId"] for voter in voters}
