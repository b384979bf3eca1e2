"""Builds the record of a classic group (GroupMetadata) from its state, and replays it.

Responsible for building the record, and for its replay, which is the only mutator of `ClassicGroup.stored`. Not
responsible for bytes (records.py), nor for soft state.
"""

from __future__ import annotations

from copy import copy
from typing import Final

from pykbroker.coordinator.group.classic.classic_group import ClassicGroup, ClassicGroupState
from pykbroker.coordinator.result import CoordinatorRecord
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored.group.group_metadata import GroupMetadataKey, GroupMetadataValue

GROUP_METADATA_VERSION: Final = 3
CLASSIC_KEYS: Final = (GroupMetadataKey,)


def group_record(group: ClassicGroup, assignments: dict[str, bytes]) -> CoordinatorRecord:
    """Return the record of the group in its present generation."""
    return CoordinatorRecord(
        GroupMetadataKey(group=group.group_id), group.to_stored(assignments), GROUP_METADATA_VERSION
    )


def empty_group_record(group: ClassicGroup) -> CoordinatorRecord:
    """Return the record of a group before its first generation, even while members are joining it."""
    value = GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=group.state_timestamp_ms)
    return CoordinatorRecord(GroupMetadataKey(group=group.group_id), value, GROUP_METADATA_VERSION)


def raised_generation(group: ClassicGroup, generation: int) -> list[CoordinatorRecord]:
    """Return the record of a group that was just loaded, in a later generation. A group without a record never had a
    generation."""
    if group.stored is None:
        return []
    value = copy(group.stored)
    value.generation = generation
    return [CoordinatorRecord(GroupMetadataKey(group=group.group_id), value, GROUP_METADATA_VERSION)]


def group_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(GroupMetadataKey(group=group_id), None)


def classic_group_id(key: TopLevel) -> str:
    assert isinstance(key, GroupMetadataKey)
    return key.group


def replay_classic(group: ClassicGroup | None, record: CoordinatorRecord) -> ClassicGroup | None:
    """Replay a record. A live group exists before its record. While the log is read, its first record creates it, and
    soft state follows at the end (`ClassicGroup.take_up_stored`)."""
    key, value = record.key, record.value
    assert isinstance(key, GroupMetadataKey)
    if value is None:
        if group is not None:
            group.move_to(ClassicGroupState.DEAD, group.state_timestamp_ms)
        return None
    assert isinstance(value, GroupMetadataValue)
    if group is None:
        group = ClassicGroup(key.group, -1)
    group.stored = value
    return group
