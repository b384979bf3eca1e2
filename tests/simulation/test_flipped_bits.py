"""A bit flips on the disk under a running node: a consumer gets the bytes unchanged, or an error. Nothing loops, and no
other client notices."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.records.batch import HEADER_SIZE
from testkit.nodes.sim import Sim
from tests.simulation.test_disk_faults import log_dirs, values

BATCHES = 6
#: A missing end of a batch, or no batch at all: the error is returned, and a retry returns it again.
TOLD = (ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE)


async def prepared(sim: Sim) -> tuple[str, int]:
    """Create topics `t`, with several batches in one segment, and `other`. Return the file and the size of a batch."""
    await sim.create("t", {"index.interval.bytes": "100"})
    await sim.create("other")
    await sim.send("other", b"kept")
    for number in range(BATCHES):
        await sim.send("t", b"%d" % number + b"x" * 200)
    path = "/data/t-0/00000000000000000000.log"
    return path, sim.disk.open(path).size() // BATCHES


def flip(sim: Sim, path: str, position: int, bit: int) -> None:
    file = sim.disk.open(path)
    file.pwritev([bytes([file.pread(1, position)[0] ^ 1 << bit])], position)


def test_a_flipped_bit_in_a_record_is_the_consumers_to_find() -> None:
    async def scenario(sim: Sim) -> None:
        path, size = await prepared(sim)
        before = sim.disk.open(path).pread(size * BATCHES, 0)
        flip(sim, path, 2 * size + HEADER_SIZE + 50, 3)
        answer = (await sim.fetch("t")).responses[0].partitions[0]
        assert answer.error_code == ErrorCode.NONE
        assert len(answer.records) == len(before)
        different = [at for at, (one, other) in enumerate(zip(before, answer.records, strict=True)) if one != other]
        assert different == [2 * size + HEADER_SIZE + 50]

    sim = Sim()
    sim.run(scenario)
    sim.close()


@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(0, BATCHES - 1),
    position=st.integers(0, HEADER_SIZE - 1),
    bit=st.integers(0, 7),
    max_bytes=st.sampled_from([1, 300, 700, 1 << 20]),
)
@example(batch=0, position=8, bit=0, max_bytes=1)  # it took the directory offline
@example(batch=2, position=8, bit=7, max_bytes=300)
@example(batch=1, position=16, bit=0, max_bytes=1)  # the batch before it could not be read
@example(batch=1, position=3, bit=0, max_bytes=300)  # an offset that no index can hold
@pytest.mark.slow
def test_a_flipped_bit_in_a_header_ends_nothing_but_that_read(
    batch: int, position: int, bit: int, max_bytes: int
) -> None:
    async def scenario(sim: Sim) -> None:
        path, size = await prepared(sim)
        flip(sim, path, batch * size + position, bit)
        for offset in range(BATCHES + 1):
            asked = sim.fetch("t", offset, max_bytes=max_bytes)
            answer = (await asyncio.wait_for(asked, 60)).responses[0].partitions[0]
            assert answer.error_code in TOLD, ErrorCode(answer.error_code)
        # Records before the damage are served, and appends to the log work.
        if batch:
            answer = (await sim.fetch("t", 0, max_bytes=size)).responses[0].partitions[0]
            assert answer.error_code == ErrorCode.NONE
            assert len(answer.records) >= size
        appended = await sim.produce("t", sim.batch(b"more"))
        assert (appended.error_code, appended.base_offset) == (ErrorCode.NONE, BATCHES)
        assert await values(sim, "other") == [b"kept"]
        assert [found.error_code for found in (await log_dirs(sim)).values()] == [ErrorCode.NONE]
        assert sim.node.fatal is None

    sim = Sim()
    try:
        sim.run(scenario)
    finally:
        sim.close()
