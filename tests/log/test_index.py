"""Finding an index entry, wherever it is guessed to be: the same result as in a list."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker_log import index as module
from pykbroker_log.memory_disk import MemoryDisk, MemoryFile
from pykbroker_log.offset_index import OffsetIndex
from pykbroker_log.time_index import TimeIndex

#: Mostly even gaps, as between batches of one producer, and some very different ones.
GAPS = st.lists(st.tuples(*[st.one_of(st.just(7), st.integers(1, 9), st.integers(1, 10**6))] * 2), max_size=80)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
@given(gaps=GAPS, written=st.integers(0, 80), begins=st.integers(0, 10**6), targets=st.lists(st.integers(-2, 10**8)))
def test_an_entry_is_found_as_in_a_list(
    kind: type[OffsetIndex] | type[TimeIndex],
    gaps: list[tuple[int, int]],
    written: int,
    begins: int,
    targets: list[int],
) -> None:
    keys = list(accumulate((key for key, _ in gaps), initial=begins))
    values = list(accumulate((value for _, value in gaps), initial=begins // 2))
    index = kind(MemoryDisk(), "index", 0)
    for number, entry in enumerate(zip(keys, values, strict=True)):
        if number == written:
            index.write_pending()
        index.add(*entry)
    with patch.object(module, "_PAGE_BYTES", 8 * index.ENTRY.size):
        for column, by_value in ((keys, False), (values, True)):
            for target in [*targets, *column, *(each - 1 for each in column)]:
                position = bisect_right(column, target) - 1
                assert index.floor(target, by_value=by_value) == position
                found = (keys[position], values[position]) if position >= 0 else None
                assert index.floor_entry(target, by_value=by_value) == found


def test_g_a_time_among_even_ones_is_found_with_a_few_reads() -> None:
    """Timestamps do not begin near zero, so their index was halved, with one read each time, down to one page."""
    index = TimeIndex(MemoryDisk(), "index", 0)
    for number in range(100_000):
        index.append(1_700_000_000_000 + 10 * number, number)
    index.write_pending()
    for target in (0, 17, 50_000, 99_998, 99_999, 10**6):
        with patch.object(MemoryFile, "pread", autospec=True, side_effect=MemoryFile.pread) as read:
            found = index.floor(1_700_000_000_000 + 10 * target)
        assert found == min(target, 99_999)
        assert read.call_count <= 2
