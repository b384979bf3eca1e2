"""The offset up to which records were deleted, as the metric shows it."""

from __future__ import annotations

from pykbroker_wire.errors import ErrorCode
from tests.coordinator.share.share_bench import PRUNE_MS, ShareBench, answered

TOPIC = b"t" * 16


def begun_anew(bench: ShareBench, times: int) -> None:
    """Write snapshots of one share partition. Only the last one is needed."""
    for _ in range(times):
        written = bench.service.initialize("g", [(TOPIC, 0, (1, 0))])
        bench.loop.settle()
        assert answered(written)[TOPIC][0].code is ErrorCode.NONE


def pruned(bench: ShareBench) -> dict[int, int]:
    bench.loop.advance(PRUNE_MS / 1000 + 1)
    return bench.service.pruned_before


def test_the_offset_goes_with_the_leadership() -> None:
    bench = ShareBench()
    bench.create(TOPIC, 1)
    begun_anew(bench, 3)
    assert pruned(bench) == {0: 2}
    bench.replicas.lead_on()
    assert bench.service.pruned_before == {0: 2}, "the leadership goes on"
    bench.replicas.lose()
    assert bench.service.pruned_before == {}
    bench.lead()
    assert bench.service.pruned_before == {}
    begun_anew(bench, 1)
    assert pruned(bench) == {0: 3}
