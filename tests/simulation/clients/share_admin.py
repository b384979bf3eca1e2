"""An administrator who resets the offsets of share groups without members: alters them, or deletes them.

Each reset is tried until every partition has it. The history gets one event for each partition, from the first try to
the success. In between, tries without an answer may have their effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from pykbroker_wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from pykbroker_worlds.history.events import OK, Place, ShareReset
from tests.simulation.clients.base import GROUP, NO_COORDINATOR, Peer

#: The errors of a group or a partition that does not have its new offset yet. Members that died are members until their
#: sessions end.
_NOT_YET: Final = NO_COORDINATOR | {ErrorCode.NON_EMPTY_GROUP, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
_NOTHING: Final = "There is no offset information to delete."


class ShareAdmin(Peer):
    """Resets the groups that it is given. The members of a group must have left, or their sessions end in time."""

    async def alter(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Set the start offsets of these partitions of a topic. Return when all are set."""
        started = self.history.now()
        left = dict(offsets)
        while left:
            asked = AlterShareGroupOffsetsRequestTopic(
                topic_name=topic,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                    for index, offset in sorted(left.items())
                ],
            )
            request = AlterShareGroupOffsetsRequest(group_id=group, topics=[asked])
            answer = await self.ask_coordinator(GROUP, group, request)
            if answer is None or await self._is_refused(group, answer.error_code):
                continue
            for partition in answer.responses[0].partitions:
                code = partition.error_code
                self.note("altered", group, topic, partition.partition_index, code)
                if code:
                    assert code in _NOT_YET, ErrorCode(code)
                    continue
                index = partition.partition_index
                self._done(started, group, (topic, index), left.pop(index))
            await self.pause()

    async def delete(self, group: str, topic: str, partitions: int) -> bool:
        """Delete the states of a topic, so that the group begins anew. Return when they are deleted: True if this
        answer has deleted them, False if there was nothing to delete, perhaps because of an earlier try."""
        started = self.history.now()
        request = DeleteShareGroupOffsetsRequest(
            group_id=group, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=topic)]
        )
        while True:
            answer = await self.ask_coordinator(GROUP, group, request)
            if answer is not None and answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                # No member has joined yet.
                return False
            if answer is None or await self._is_refused(group, answer.error_code):
                continue
            deleted = answer.responses[0]
            self.note("deleted", group, topic, deleted.error_code)
            if not deleted.error_code or deleted.error_message == _NOTHING:
                break
            assert deleted.error_code in _NOT_YET, deleted
            await self.pause()
        for index in range(partitions):
            self._done(started, group, (topic, index), None)
        return not deleted.error_code

    async def _is_refused(self, group: str, code: int) -> bool:
        """Return True if the group as a whole is refused, after a pause."""
        if not code:
            return False
        self.note("refused", group, code)
        assert code in _NOT_YET, ErrorCode(code)
        if code in NO_COORDINATOR:
            await self.moved(GROUP, group)
        await self.pause(0.1, 0.5)
        return True

    def _done(self, started: int, group: str, place: Place, offset: int | None) -> None:
        event = ShareReset(started=started, code=OK, client=self.name, group=group, place=place, offset=offset)
        self.history.record(event)
        self.world.tell(self.name, f"{group}: {place} begins {'anew' if offset is None else f'at {offset}'}")
