"""Nodes of both implementations whose listeners have no host: each writes its machine's own name.

Namespaces give the machine a name of its own, so that localhost is not the right answer by chance. There is one node of
each kind: the first begins a quorum, and the other joins it. Each controller has two listeners, because Apache Kafka
writes them in an order of its own.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from compat_tests.mixed_cluster.conftest import NewCluster
from compat_tests.mixed_cluster.images import log_of
from compat_tests.mixed_cluster.members import CLUSTER_ID, PATIENCE_S, Cluster, Kind, Member
from pykbroker_raft.batches import control_records
from pykbroker_raft.voters import VoterSet
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from pykbroker_wire.messages.voters_record import VotersRecord
from testkit.nodes.nodes import eventually
from testkit.nodes.wire import Wire
from testkit.ports import steady_port

pytestmark = pytest.mark.slow

NAME = "kafka-host.example.org"
OTHER: dict[Kind, Kind] = {"kafka": "pykbroker", "pykbroker": "kafka"}
SETTINGS = {
    "controller.listener.names": "CONTROLLER,ADMIN",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,ADMIN:PLAINTEXT",
}


@pytest.fixture(scope="module")
def renamed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return a command prefix that runs another command on a machine called NAME."""
    hosts = tmp_path_factory.mktemp("hosts") / "hosts"
    hosts.write_text(f"127.0.0.1 {NAME} {NAME.partition('.')[0]}\n127.0.0.1 localhost\n")
    script = f'hostname {NAME.partition(".")[0]} && mount --bind {hosts} /etc/hosts && exec "$@"'
    prefix = ["unshare", "--uts", "--mount", "sh", "-c", script, "sh"]
    if os.geteuid() != 0 or subprocess.run([*prefix, "true"], capture_output=True).returncode != 0:
        pytest.skip("a machine with a name of its own needs root and namespaces")
    return prefix


@pytest.fixture(scope="module", params=["pykbroker", "kafka"], ids=lambda kind: f"{kind} first")
def cluster(request: pytest.FixtureRequest, new_cluster: NewCluster, renamed: list[str]) -> Iterator[Cluster]:
    first: Kind = request.param
    with new_cluster(
        {1: Member(first), 2: Member(OTHER[first])},
        quorum="joining",
        settings=SETTINGS,
        listeners={number: f"ADMIN://:{steady_port()}" for number in (1, 2)},
        directories=1,
        host="",
        prefix=renamed,
    ) as made:
        made.start(1)
        made.start(2)
        yield made


def voters(cluster: Cluster) -> dict[int, set[str]]:
    """Return the hosts of each voter, from the active controller."""
    with cluster.controller(cluster.active()) as wire:
        answer = wire.quorum()
    (part,) = answer.topics[0].partitions
    hosts = {node.node_id: {listener.host for listener in node.listeners} for node in answer.nodes}
    return {voter.replica_id: hosts.get(voter.replica_id, set()) for voter in part.current_voters}


def voter_sets(data: Path) -> list[VoterSet]:
    """Return every voter set of a log, in its order."""
    records = (change.message for batch in log_of(data) for _, change in control_records(batch.data))
    return [VoterSet.from_record(record) for record in records if isinstance(record, VotersRecord)]


def test_nodes_of_both_kinds_write_the_name_of_the_machine_and_come_back(cluster: Cluster) -> None:
    both = {1: {NAME}, 2: {NAME}}
    eventually("both are voters under the name", lambda: voters(cluster) == both, seconds=PATIENCE_S)
    hostless = AddRaftVoterRequest(
        cluster_id=CLUSTER_ID,
        timeout_ms=5000,
        voter_id=9,
        voter_directory_id=b"9" * 16,
        listeners=[Listener(name="CONTROLLER", host="", port=1)],
    )
    leader = cluster.active()
    if cluster.members[leader].kind == "pykbroker":
        with cluster.controller(leader) as wire:
            assert wire.call(hostless).error_code == ErrorCode.INVALID_REQUEST
    # A cold start: each reads the other's records. With two voters the last one could not stop in order.
    cluster.kill(1, 2)
    cluster.start_all()
    cluster.serving(1, 2)
    for number in (1, 2):
        with Wire(cluster.address(number)) as wire:
            assert {broker.host for broker in wire.metadata().brokers} == {NAME}
    eventually("both are voters after the restart", lambda: voters(cluster) == both, seconds=PATIENCE_S)
    cluster.kill(1, 2)
    assert not cluster.complaints()
    for number in (1, 2):
        written = voter_sets(cluster.data(number))
        for before, after in pairwise(written):
            assert any(before.needs_update(voter) for voter in after) or before.ids() != after.ids(), written
