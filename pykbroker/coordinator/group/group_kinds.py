"""The kinds of groups. Two are served. The records of two others are only kept (kept_groups.py), because coordinators
on other brokers may serve these kinds.

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
    replay_classic,
)
from pykbroker.coordinator.group.classic.classic_step import ClassicStep
from pykbroker.coordinator.group.consumer.consumer_group import CONSUMER, ConsumerGroup
from pykbroker.coordinator.group.consumer.consumer_records import group_tombstones
from pykbroker.coordinator.group.consumer.consumer_replay import CONSUMER_KEYS, consumer_group_id, replay_consumer
from pykbroker.coordinator.group.contract import Group, GroupKind
from pykbroker.coordinator.group.kept_groups import SHARE, SHARE_KIND, STREAMS, STREAMS_KIND
from pykbroker.coordinator.group.mixed import MixedStep

_CLASSIC: Final[GroupKind[ClassicGroup]] = GroupKind(
    group=ClassicGroup,
    keys=CLASSIC_KEYS,
    group_id_of_key=classic_group_id,
    replay_record=replay_classic,
    tombstones_of=lambda group: [group_tombstone(group.group_id)],
    step_of=lambda group, settings, _topics, now_ms, result: ClassicStep(group, settings, now_ms, result),
)
_CONSUMER: Final[GroupKind[ConsumerGroup]] = GroupKind(
    group=ConsumerGroup,
    keys=CONSUMER_KEYS,
    group_id_of_key=consumer_group_id,
    replay_record=replay_consumer,
    tombstones_of=group_tombstones,
    step_of=MixedStep,
)
#: The kinds by the names that ListGroups shows.
KINDS: Final[Mapping[str, GroupKind[Group]]] = {
    CLASSIC: _CLASSIC,
    CONSUMER: _CONSUMER,
    SHARE: SHARE_KIND,
    STREAMS: STREAMS_KIND,
}
