"""Conversations with a coordinator as text: commands in, each answer, each record and the whole state out.

The files are tests/transcripts/groups/*.txt; conversation.py describes how they are read and rewritten.

    > join GROUP [MEMBER] [instance=I] [protocols=a,b] [type=T] [session=MS] [rebalance=MS] [v=VERSION]
    > sync GROUP MEMBER GENERATION [MEMBER:ASSIGNMENT …] [instance=I]
    > heartbeat GROUP MEMBER GENERATION [instance=I]
    > leave GROUP [MEMBER][/INSTANCE] …
    > commit GROUP [MEMBER GENERATION] TOPIC-PARTITION=OFFSET …
    > fetch GROUP
    > delete GROUP …
    > advance MS
    > restart              another coordinator loads the log
    > refuse ERROR         the next append fails

The first line may be a command `settings KEY=VALUE …`. Members are named client-id1, client-id2, … in the order of
ids given out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pykbroker.coordinator.group import records
from pykbroker.coordinator.group.settings import GroupSettings
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.heartbeat import HeartbeatResponse
from pykbroker_wire.messages.join_group import JoinGroupResponse
from pykbroker_wire.messages.leave_group import LeaveGroupResponse
from pykbroker_wire.messages.offset_commit import OffsetCommitResponse
from pykbroker_wire.messages.sync_group import SyncGroupResponse
from pykbroker_wire.stored.group.group_metadata import GroupMetadataKey, GroupMetadataValue
from pykbroker_wire.stored.group.offset_commit import OffsetCommitKey
from tests.coordinator.conversation import Conversation, retell, stories
from tests.coordinator.group.harness import START_MS, Bench, Refused, classic_groups, subscription


class GroupConversation(Conversation):
    """Runs commands and prints their results."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.told = 0

    # -- commands -----------------------------------------------------------------------------------------------------

    def do_settings(self, plain: list[str], options: dict[str, str]) -> None:
        settings: dict[str, Any] = {key: int(value) for key, value in options.items()}
        self.bench = Bench(GroupSettings(**settings))

    def do_join(self, plain: list[str], options: dict[str, str]) -> None:
        self.bench.join(
            plain[0],
            plain[1] if len(plain) > 1 else "",
            instance=options.get("instance"),
            protocols={name: subscription("t") for name in options.get("protocols", "range").split(",") if name},
            protocol_type=options.get("type", "consumer"),
            session_ms=int(options.get("session", 10_000)),
            rebalance_ms=int(options.get("rebalance", 60_000)),
            version=int(options.get("v", 9)),
        )

    def do_sync(self, plain: list[str], options: dict[str, str]) -> None:
        assignments = dict(word.split(":") for word in plain[3:])
        self.bench.sync(
            plain[0],
            plain[1],
            int(plain[2]),
            {member: assignment.encode() for member, assignment in assignments.items()},
            instance=options.get("instance"),
        )

    def do_heartbeat(self, plain: list[str], options: dict[str, str]) -> None:
        self.bench.heartbeat(plain[0], plain[1], int(plain[2]), options.get("instance"))

    def do_leave(self, plain: list[str], options: dict[str, str]) -> None:
        self.bench.leave(
            plain[0],
            *((member, instance or None) for member, _, instance in (name.partition("/") for name in plain[1:])),
        )

    def do_commit(self, plain: list[str], options: dict[str, str]) -> None:
        offsets = {}
        for name, offset in options.items():
            topic, _, partition = name.rpartition("-")
            offsets[topic, int(partition)] = int(offset)
        member, generation = (plain[1], int(plain[2])) if len(plain) > 1 else ("", -1)
        self.bench.commit(plain[0], offsets, member, generation)

    def do_fetch(self, plain: list[str], options: dict[str, str]) -> None:
        found = self.bench.committed(plain[0])
        self._say(
            "  fetched "
            + (" ".join(f"{topic}-{index}={offset}" for (topic, index), offset in sorted(found.items())) or "nothing")
        )

    def do_delete(self, plain: list[str], options: dict[str, str]) -> None:
        for result in self.bench.ask(lambda shard, token, now_ms: shard.delete_groups(plain, token, now_ms)):
            self._say(f"  deleted {result.group_id}: {ErrorCode(result.error_code).name}")

    def do_advance(self, plain: list[str], options: dict[str, str]) -> None:
        self.bench.advance(int(plain[0]))

    def do_restart(self, plain: list[str], options: dict[str, str]) -> None:
        self.bench = self.bench.restart()

    def do_refuse(self, plain: list[str], options: dict[str, str]) -> None:
        self.bench.refuse_next = ErrorCode[plain[0]]

    # -- results -------------------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        for token in list(self.bench.answers):
            self._say(f"  #{token} {answer_text(self.bench.answers.pop(token))}")
        for key, value in self.bench.log[self.told :]:
            self._say(f"  log: {record_text(key, value)}")
        self.told = len(self.bench.log)
        for group in classic_groups(self.bench.shard).values():
            stored = group.stored
            in_log = f"generation {stored.generation} of {len(stored.members)}" if stored is not None else "nothing"
            self._say(
                f"  {group.group_id}: {group.state.value} generation={group.generation} "
                f"protocol={group.protocol_type}/{group.protocol_name} leader={group.leader} in log: {in_log}"
            )
            for member in group.members.values():
                waits = [
                    f"waits in {name} #{token}"
                    for name, token in (("join", member.awaiting_join), ("sync", member.awaiting_sync))
                    if token is not None
                ]
                parts = [
                    member.member_id,
                    f"instance={member.instance_id}" if member.is_static else "",
                    "protocols=" + ",".join(name for name, _ in member.protocols),
                    f"assignment={member.assignment.decode()}",
                    *waits,
                    "has not synced" if member.member_id in group.pending_sync else "",
                ]
                self._say("    " + " ".join(part for part in parts if part))
            if group.pending_join:
                self._say(f"    expected: {' '.join(sorted(group.pending_join))}")
        for name, left_ms in self.bench.timers():
            if name != ("expire",):
                self._say(f"  timer: {' '.join(name)} in {left_ms} ms")


def answer_text(answer: Any) -> str:
    error = ErrorCode(getattr(answer, "error_code", 0)).name
    match answer:
        case Refused():
            return error
        case JoinGroupResponse():
            members = ",".join(member.member_id for member in answer.members)
            protocol = f"{answer.protocol_type}/{answer.protocol_name}"
            return (
                f"join {error} generation={answer.generation_id} protocol={protocol} "
                f"leader={answer.leader} member={answer.member_id} members=[{members}] skip={answer.skip_assignment}"
            )
        case SyncGroupResponse():
            protocol = f"{answer.protocol_type}/{answer.protocol_name}"
            return f"sync {error} protocol={protocol} assignment={answer.assignment.decode()}"
        case HeartbeatResponse():
            return f"heartbeat {error}"
        case LeaveGroupResponse():
            each = " ".join(
                f"{member.member_id}/{member.group_instance_id}:{ErrorCode(member.error_code).name}"
                for member in answer.members
            )
            return f"leave {error} {each}"
        case OffsetCommitResponse():
            each = " ".join(
                f"{topic.name}-{partition.partition_index}:{ErrorCode(partition.error_code).name}"
                for topic in answer.topics
                for partition in topic.partitions
            )
            return f"commit {each}"
    raise AssertionError(answer)


def record_text(key: bytes, value: bytes | None) -> str:
    record = records.decode(key, value)
    assert record is not None
    if isinstance(record.key, OffsetCommitKey):
        name = f"offset {record.key.group} {record.key.topic}-{record.key.partition}"
        if isinstance(record.value, bytes):
            return f"{name} = {records.decode_offset(record.value).offset}"
        return f"{name} deleted"
    assert isinstance(record.key, GroupMetadataKey)
    if not isinstance(record.value, GroupMetadataValue):
        return f"group {record.key.group} deleted"
    group = record.value
    members = " ".join(f"{member.member_id}={member.assignment.decode()}" for member in group.members)
    at = group.current_state_timestamp - START_MS
    return (
        f"group {record.key.group} generation={group.generation} protocol={group.protocol_type}/{group.protocol} "
        f"leader={group.leader} since={at} members: {members or 'none'}"
    )


@pytest.mark.parametrize("path", stories("groups"), ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    retell(path, GroupConversation())
