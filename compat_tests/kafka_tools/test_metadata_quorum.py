"""`kafka-features` raises kraft.version of three nodes with configured voters, and `kafka-metadata-quorum` shows them.

compat_tests/three_nodes compares the tools' output about voters of the log with Apache Kafka.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from compat_tests.kafka_tools.conftest import TOOLS
from compat_tests.tool_server import run_shared
from testkit.nodes.nodes import eventually
from testkit.nodes.trio import Trio
from testkit.oracle.kafka import kafka_libs

MAIN = f"{TOOLS}.MetadataQuorumCommand"


def status(*where: str) -> dict[str, str]:
    said = run_shared(MAIN, [*where, "describe", "--status"]).out
    return dict(re.findall(r"^(\w+):\s+(.*?)\s*$", said, re.M))


def test_configured_voters_become_voters_of_the_log(tmp_path: Path) -> None:
    kafka_libs()
    trio = Trio(tmp_path, "static", {})
    with trio:
        trio.serving(1, 2, 3)
        server = ("--bootstrap-server", trio.bootstrap)
        raised = [*server, "upgrade", "--feature", "kraft.version=1"]

        def is_raised() -> bool:
            return run_shared(f"{TOOLS}.FeatureCommand", raised, check=False).status == 0

        eventually("kraft.version is raised", is_raised)
        voters = json.loads(status(*server)["CurrentVoters"])
        assert {voter["id"] for voter in voters} == {1, 2, 3}
        assert "A" * 22 not in {voter["directoryId"] for voter in voters}
