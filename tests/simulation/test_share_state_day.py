"""A day's load of `__share_group_state`: the topic stays small, and what pruning leaves is the whole state."""

from __future__ import annotations

import pytest

from pykbroker.coordinator.result import Result
from pykbroker.coordinator.share.shard import ShareStateShard
from pykbroker_log.memory_disk import Survive
from testkit.nodes.sim import Sim
from testkit.nodes.state_day import CONFIG, DAY, SEGMENT_BYTES, StateDay
from testkit.promises import results

pytestmark = pytest.mark.slow

#: The records that are left after a pruning, of 36 share partitions: a few snapshots of each, and some minutes of
#: writes.
MOST_RECORDS = 800


def play(minutes: int) -> StateDay:
    sim = Sim(CONFIG)

    async def load(sim: Sim) -> StateDay:
        day = StateDay(sim)
        await day.begin()
        for _ in range(minutes):
            await day.minute()
        day.check()
        before = day.state()
        sim.sim_node.kill(Survive.EVERYTHING)
        await sim.sim_node.start()
        await _is_loaded(day)
        assert day.state() == before, "a coordinator that has loaded the log has the same state"
        return day

    try:
        return sim.run(load)
    finally:
        sim.close()


async def _is_loaded(day: StateDay) -> None:
    """Wait until the coordinator answers."""
    await results([day.persister.summarize(day.keys[0])], 60)


def test_the_topic_stays_small_for_a_quarter_of_a_day() -> None:
    day = play(DAY // 4)
    assert day.prunes > 20
    assert day.most_records < MOST_RECORDS


@pytest.mark.long(amount="the load of a day")
def test_the_topic_stays_small_for_a_day() -> None:
    day = play(DAY)
    assert day.prunes > 80
    assert day.most_records < MOST_RECORDS
    # Whole segments are deleted, so there may be one more than is needed.
    assert day.most_bytes < 2 * SEGMENT_BYTES
    assert day.written_bytes > 1.5 * day.most_bytes, "without pruning there were more"


def test_a_coordinator_that_deletes_what_a_cold_share_partition_needs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def newest(shard: ShareStateShard) -> int | None:
        return max((kept.snapshot_at or 0 for kept in shard.states.values()), default=None)

    monkeypatch.setattr(ShareStateShard, "redundant_before", newest)
    with pytest.raises(AssertionError):
        play(60)


def test_a_coordinator_that_writes_no_cold_snapshots_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShareStateShard, "snapshot_cold", lambda *_: Result())
    assert play(180).most_records > MOST_RECORDS
