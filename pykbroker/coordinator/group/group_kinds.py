"""The kinds of groups. Three are served. The records of streams groups are only kept (kept_groups.py), because
coordinators on other brokers may serve them.

Responsible for the table alone (contract.py has the interfaces of a kind).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pykbroker.coordinator.group.classic.classic_group import CLASSIC, ClassicGroup
from pykbroker.coordinator.group.classic.classic_records import (
    CLASSIC_KEYS,
    classic_group_id,
    group_tombstone,
    raised_generation,
    replay_classic,
)
from pykbroker.coordinator.group.classic.classic_step import ClassicStep
from pykbroker.coordinator.group.consumer.consumer_group import CONSUMER, ConsumerGroup
from pykbroker.coordinator.group.consumer.consumer_records import epoch_record, group_tombstones
from pykbroker.coordinator.group.consumer.consumer_replay import CONSUMER_KEYS, consumer_group_id, replay_consumer
from pykbroker.coordinator.group.contract import Group, GroupKind
from pykbroker.coordinator.group.kept_groups import STREAMS, STREAMS_KIND
from pykbroker.coordinator.group.mixed import MixedStep
from pykbroker.coordinator.group.share.share_group import SHARE, ShareGroup
from pykbroker.coordinator.group.share.share_records import SHARE_KEYS, replay_share, share_group_id
from pykbroker.coordinator.group.share.share_records import epoch_record as share_epoch_record
from pykbroker.coordinator.group.share.share_records import group_tombstones as share_group_tombstones
from pykbroker.coordinator.group.share.share_step import ShareStep
from pykbroker_wire.primitives import TopLevel

_CLASSIC: Final[GroupKind[ClassicGroup]] = GroupKind(
    group=ClassicGroup,
    keys=CLASSIC_KEYS,
    group_id_of_key=classic_group_id,
    replay_record=replay_classic,
    tombstones_of=lambda group: [group_tombstone(group.group_id)],
    raised_to=raised_generation,
    step_of=lambda group, settings, _topics, now_ms, result: ClassicStep(group, settings, now_ms, result),
)
_CONSUMER: Final[GroupKind[ConsumerGroup]] = GroupKind(
    group=ConsumerGroup,
    keys=CONSUMER_KEYS,
    group_id_of_key=consumer_group_id,
    replay_record=replay_consumer,
    tombstones_of=group_tombstones,
    raised_to=lambda group, epoch: [epoch_record(group.group_id, epoch, group.metadata_hash)],
    step_of=MixedStep,
)
_SHARE: Final[GroupKind[ShareGroup]] = GroupKind(
    group=ShareGroup,
    keys=SHARE_KEYS,
    group_id_of_key=share_group_id,
    replay_record=replay_share,
    tombstones_of=share_group_tombstones,
    raised_to=lambda group, epoch: [share_epoch_record(group.group_id, epoch, group.metadata_hash)],
    step_of=ShareStep,
)
#: The kinds by the names that ListGroups shows.
KINDS: Final[Mapping[str, GroupKind[Group]]] = {
    CLASSIC: _CLASSIC,
    CONSUMER: _CONSUMER,
    SHARE: _SHARE,
    STREAMS: STREAMS_KIND,
}


def kinds_by_key(kinds: Mapping[str, GroupKind[Group]]) -> dict[type[TopLevel], GroupKind[Group]]:
    """Return the kind of each type of key that records of groups have."""
    return {key: kind for kind in kinds.values() for key in kind.keys}
