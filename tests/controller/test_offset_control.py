"""The state that remains when a controller loses the leadership."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pykbroker.controller.offset_control import OffsetControl
from pykbroker.controller.state import Checkpoint
from pykbroker.metadata.image import EMPTY_IMAGE


def at(offset: int) -> Checkpoint:
    return Checkpoint(replace(EMPTY_IMAGE, offset=offset))


@pytest.fixture
def offsets() -> OffsetControl:
    return OffsetControl(at(-1))


def test_batches_that_are_not_committed_are_lost_with_the_leadership(offsets: OffsetControl) -> None:
    for last in (2, 5, 9):
        offsets.appended(last, at(last))
    offsets.committed(5)
    assert not offsets.is_committed
    assert offsets.revert() == at(5)
    assert (offsets.replayed_offset, offsets.committed_offset) == (5, 5)
    assert offsets.is_committed


def test_a_commit_inside_a_batch_keeps_the_state_before_that_batch(offsets: OffsetControl) -> None:
    offsets.appended(5, at(5))
    offsets.committed(3)
    assert offsets.committed_offset == 3
    assert offsets.revert() == at(-1)


def test_a_commit_that_is_reported_again_changes_nothing(offsets: OffsetControl) -> None:
    offsets.appended(5, at(5))
    offsets.committed(5)
    offsets.committed(2)
    assert offsets.committed_offset == 5
    assert offsets.revert() == at(5)


def test_a_snapshot_replaces_everything(offsets: OffsetControl) -> None:
    offsets.appended(5, at(5))
    offsets.begin(20, at(20))
    assert offsets.is_committed
    assert offsets.revert() == at(20)
    assert offsets.replayed_offset == 20
