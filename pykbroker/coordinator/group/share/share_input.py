"""One input to a share group, with what several parts of it do: targets, the group epoch, refused appends.

Responsible for computing a target when it may be computed, and for the records of epochs and targets. Not responsible
for when that is due (share_step.py, waiting_joins.py), nor for the assignment itself (share_target.py).
"""

from __future__ import annotations

import logging

from pykbroker.coordinator.group.configs import ShareGroupConfig
from pykbroker.coordinator.group.settings import GroupSettings
from pykbroker.coordinator.group.share.share_group import ShareGroup
from pykbroker.coordinator.group.share.share_member import ShareMember
from pykbroker.coordinator.group.share.share_partition_states import SharePartitionStates
from pykbroker.coordinator.group.share.share_records import current_record, epoch_record
from pykbroker.coordinator.group.share.share_target import ShareTarget, compute_share_target, with_target
from pykbroker.coordinator.group.topics import GroupTopics
from pykbroker.coordinator.result import AppendFailed, Result
from pykbroker_wire.errors import ErrorCode

logger = logging.getLogger(__name__)


class ShareInput:
    """The values of one input. It lives as long as the input."""

    __slots__ = ("group", "now_ms", "result", "settings", "topics")

    def __init__(
        self, group: ShareGroup, settings: GroupSettings, topics: GroupTopics, now_ms: int, result: Result
    ) -> None:
        self.group = group
        self.settings = settings
        self.topics = topics
        self.now_ms = now_ms
        self.result = result

    @property
    def config(self) -> ShareGroupConfig:
        return self.settings.share_config(self.group.group_id)

    def write_epoch(self, epoch: int, metadata_hash: int) -> None:
        self.result.records.append(epoch_record(self.group.group_id, epoch, metadata_hash))
        self.result.tell(
            logger,
            "Group %s: the group epoch is %d now, with metadata hash %d",
            self.group.group_id,
            epoch,
            metadata_hash,
        )

    def may_compute_target(self) -> bool:
        """Return False for a while after the last target, so that members that start together get one target. If the
        clock was set back, or the clock of a new coordinator is behind, the group does not wait until it reaches the
        old time."""
        return self.group.target_timestamp_ms == 0 or not 0 <= self.target_age_ms < self.config.assignment_interval_ms

    @property
    def target_age_ms(self) -> int:
        """The time since the last target of the group; negative if the clock was set back."""
        return self.settings.jumps().age_ms(self.now_ms, self.group.target_timestamp_ms)

    def compute_target(self, epoch: int, updated: ShareMember | None, states: SharePartitionStates) -> ShareTarget:
        group = self.group
        target = compute_share_target(group, epoch, updated, states, self.topics, self.now_ms)
        self.result.records += target.records
        self.result.tell(logger, "Group %s: the target assignment has epoch %d now", group.group_id, epoch)
        return target

    def take_target(self, member: ShareMember, target: ShareTarget, *, changed: bool = False) -> ShareMember:
        """Return the member with its part of the target, and write its record if it changed."""
        own = target.of(member.member_id)
        updated = with_target(member, target.epoch, own, self.topics, changed=changed)
        if updated is not member:
            self.result.records.append(current_record(self.group.group_id, updated))
        return updated

    def if_refused(self, action: AppendFailed) -> None:
        before = self.result.append_failed

        def both(error: ErrorCode, now_ms: int) -> Result:
            result = action(error, now_ms)
            if before is not None:
                first = before(error, now_ms)
                result.timers = first.timers + result.timers
                result.replies = first.replies + result.replies
            return result

        self.result.append_failed = both
