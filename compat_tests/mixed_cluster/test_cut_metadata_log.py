"""Apache Kafka uses the directory of a voter for a while and truncates flushed records of the voter, then pykbroker
starts.

The voter led alone, so none of its appended records were committed. `pykbroker.flushed` contains those records and
stays in the directory; quorum-state, which Apache Kafka writes at each start, shows that it no longer counts.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from compat_tests.mixed_cluster.conftest import NewCluster
from compat_tests.mixed_cluster.images import FOLDER, log_of
from compat_tests.mixed_cluster.members import PATIENCE_S, Cluster, Member
from compat_tests.mixed_cluster.test_quorums import ends
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_raft.flushed_note import MARK, read_note
from pykbroker_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from testkit.nodes.nodes import eventually
from testkit.nodes.wire import BROKER

VOTERS = (1, 2, 3)
TAIL = 30
SETTINGS = {
    # The voter that is left alone leads long enough to write records that cannot be committed.
    "controller.quorum.fetch.timeout.ms": "20000",
    "controller.quorum.election.timeout.ms": "1000",
}


def _leader(cluster: Cluster) -> int:
    """Return the voter that leads and that all living voters follow."""

    def look() -> int | None:
        for number in cluster.running:
            with suppress(OSError):
                found = ends(cluster, number)
                if found and all(found[each] >= found[number] for each in cluster.running):
                    return number
        return None

    return eventually("a voter leads the others", look, seconds=PATIENCE_S)


def _has_fetched(cluster: Cluster, number: int) -> int:
    """Wait until a voter has all records of the leader; returns the end of the leader's log."""

    def look() -> int | None:
        leader = _leader(cluster)
        found = ends(cluster, leader)
        return found[leader] if leader != number and found.get(number, -1) >= found[leader] else None

    return eventually(f"voter {number} has the leader's records", look, seconds=PATIENCE_S)


def _quorum_state(cluster: Cluster, number: int) -> tuple[Any, bool]:
    """Return the state, and True if pykbroker wrote it last."""
    data = (cluster.data(number) / FOLDER / "quorum-state").read_bytes()
    return json.loads(data), data.endswith(MARK)


def _note(cluster: Cluster, number: int) -> int:
    return read_note(OsDisk(), str(cluster.data(number) / FOLDER)).offset


def _is_beyond(cluster: Cluster, number: int, offset: int) -> bool:
    return _note(cluster, number) > offset


def _append_alone(cluster: Cluster, number: int) -> None:
    """Let a leader without followers append records that will not be committed. No answer comes."""
    for count in range(TAIL):
        before = _note(cluster, number)
        change = AlterableConfig(name="log.retention.ms", config_operation=0, value=str(10**9 + count))
        resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[change])
        with cluster.controller(number) as wire:
            wire.send(IncrementalAlterConfigsRequest(resources=[resource]))
            eventually("it is flushed", partial(_is_beyond, cluster, number, before))


@pytest.mark.slow
def test_a_voter_starts_after_apache_kafka_has_cut_off_what_it_had_flushed(new_cluster: NewCluster) -> None:
    with new_cluster({number: Member("pykbroker", "controller") for number in VOTERS}, settings=SETTINGS) as cluster:
        cluster.start_all()
        lent = _leader(cluster)
        others = [number for number in VOTERS if number != lent]
        for number in others:
            _has_fetched(cluster, number)
        cluster.kill(*others)
        _append_alone(cluster, lent)
        cluster.kill(lent)
        flushed = _note(cluster, lent)
        assert _quorum_state(cluster, lent)[1]
        cluster.start(*others)
        _leader(cluster)

        cluster.members[lent] = Member("kafka", "controller")
        cluster.start(lent)
        end = _has_fetched(cluster, lent)
        cluster.stop(lent)
        assert end < flushed, "the log must end below the note, or nothing is tried"
        theirs, is_marked = _quorum_state(cluster, lent)
        assert not is_marked

        cluster.members[lent] = Member("pykbroker", "controller")
        cluster.start(lent)
        _has_fetched(cluster, lent)
        assert _quorum_state(cluster, lent) == (theirs, True)
        cluster.stop(lent)
        assert _note(cluster, lent) >= end

        # Apache Kafka also writes quorum-state in the same epoch and with nothing to write.
        cluster.members[lent] = Member("kafka", "controller")
        cluster.start(lent)
        _has_fetched(cluster, lent)
        cluster.stop(lent)
        assert _quorum_state(cluster, lent) == (theirs, False)

        cluster.members[lent] = Member("pykbroker", "controller")
        cluster.start(lent)
        _has_fetched(cluster, lent)
        cluster.stop(*VOTERS)
        assert not cluster.complaints()
        logs = [{batch.base_offset: batch.data for batch in log_of(cluster.data(number))} for number in VOTERS]
        assert all(logs[0][offset] == log[offset] for log in logs for offset in logs[0].keys() & log.keys())
