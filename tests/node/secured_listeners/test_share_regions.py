"""Records that a member of a share group acquires leave as parts of segment files, over a plain socket and over TLS."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pykbroker_log.os_disk.files import OsRegion
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
    PartitionData,
)
from pykbroker_wire.primitives import uuid_to_str
from pykbroker_wire.records.batch import iter_batches, verify_crc
from testkit.certificates import client_context, node_properties
from testkit.nodes.nodes import eventually
from testkit.nodes.wire import Wire, batch
from testkit.share_requests import GROUP, RELEASE, acquired, outcomes, share_acknowledges, share_fetches
from tests.node.secured_listeners.test_tls_listeners import Secured, pattern

VALUE_BYTES = 200_000
BATCHES = 8
SHARE = 2


def prepare(wire: Wire, topic_id: bytes) -> None:
    """Do what the coordinator of the group does for a share partition."""
    found = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[f"{GROUP}:{uuid_to_str(topic_id)}:0"])
    eventually("a share coordinator", lambda: not wire.call(found).coordinators[0].error_code)
    data = PartitionData(partition=0, state_epoch=1, start_offset=0)
    asked = InitializeShareGroupStateRequest(
        group_id=GROUP, topics=[InitializeStateData(topic_id=topic_id, partitions=[data])]
    )
    eventually("the state", lambda: not wire.call(asked).results[0].partitions[0].error_code)


@pytest.mark.slow
@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
def test_whole_batches_leave_as_parts_of_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secured: bool
) -> None:
    cuts: list[tuple[int, int]] = []
    part = OsRegion.part

    def counted(region: OsRegion, position: int, length: int) -> OsRegion:
        cuts.append((position, length))
        return part(region, position, length)

    monkeypatch.setattr(OsRegion, "part", counted)
    values = [pattern(VALUE_BYTES, index + 1) for index in range(BATCHES)]
    one = {
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
    }
    with Secured(tmp_path / "data", {**node_properties(), **one}) as node:
        address = node.address() if secured else node.address("PLAINTEXT")
        with Wire(address, tls=client_context(tmp_path) if secured else None) as wire:
            wire.create("t")
            for value in values:
                assert not wire.produce("t", batch(value, value)).error_code
            topic_id = wire.metadata("t").topics[0].topic_id
            prepare(wire, topic_id)
            fetches = partial(share_fetches, topic_id, max_wait_ms=5_000, max_bytes=1 << 26)
            taken = wire.call(fetches(0, max_records=3))
            assert acquired(taken) == {0: [(0, 3, 1)]}
            check(taken, values[:2])
            rest = wire.call(fetches(epoch=1))
            assert acquired(rest) == {0: [(4, 15, 1)]}
            check(rest, values[2:])
            assert outcomes(wire.call(share_acknowledges(topic_id, {0: [(6, 9, RELEASE)]}, 2))) == {0: ErrorCode.NONE}
            again = wire.call(fetches(epoch=3))
            assert acquired(again) == {0: [(6, 9, 2)]}
            check(again, values[3:5])
    # The second fetch takes its read whole. The others take a part, each from its first batch on.
    sizes = [length for _, length in cuts]
    assert len(cuts) == 2
    assert all(4 * VALUE_BYTES < size < 4 * VALUE_BYTES + 1_000 for size in sizes)


def check(answer: Any, values: list[bytes]) -> None:
    """The records are these batches of two values, byte for byte as they were written."""
    records = answer.responses[0].partitions[0].records
    headers = list(iter_batches(records))
    assert len(headers) == len(values)
    for (position, header), value in zip(headers, values, strict=True):
        assert verify_crc(records, position, header)
        assert bytes(records[position : position + header.size_in_bytes]).count(value) == 2
