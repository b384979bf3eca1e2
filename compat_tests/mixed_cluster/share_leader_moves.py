"""A story of a cluster of two brokers: the leader of a share partition moves, is killed and is restarted."""

from __future__ import annotations

from collections.abc import Sequence

from compat_tests.mixed_cluster.members import Cluster
from compat_tests.mixed_cluster.share_members import ShareMembers

#: of a step, before and after it
RECORDS = 20


def leaders_move(
    cluster: Cluster, name: str, internal: Sequence[str], moves: Sequence[int], ends: Sequence[int]
) -> None:
    """Let four share groups consume while the leader moves to each of `moves`, and then each of `ends` is killed and
    restarted as the leader. `internal` are the topics of coordinators, which have to be in sync before that."""
    topic = cluster.create(name, cluster.numbers)
    members = ShareMembers(cluster, topic)
    with members.running():
        members.produce(RECORDS)
        members.all_came()
        for node in moves:
            members.produce(RECORDS)
            cluster.move(topic, node)
            members.produce(RECORDS)
            members.all_came()
        for node in ends:
            for end in (cluster.kill, cluster.stop):
                cluster.move(topic, node)
                cluster.in_sync(topic, *internal)
                members.produce(RECORDS)
                end(node)
                members.produce(RECORDS)
                members.all_came()
                cluster.start(node)
                cluster.in_sync(topic, *internal)
                members.produce(RECORDS)
                members.all_came()
    members.judge()
    assert not cluster.complaints()
