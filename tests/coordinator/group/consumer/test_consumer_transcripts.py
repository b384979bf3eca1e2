"""Conversations with consumer groups (KIP-848) as text: commands in, each answer, each record and the whole state out.

The files are tests/transcripts/consumer_groups/*.txt; conversation.py describes how they are read and rewritten.

    > topic NAME PARTITIONS         made, or grown
    > drop NAME                     deleted
    > beat MEMBER EPOCH [topics=a,b] [regex=R] [owned=t-0,t-1 | owned=-] [instance=I] [rebalance=MS] [assignor=A]
    > enter MEMBER [topics=a,b] …   beat with epoch 0 and all that a first heartbeat must say (topic t)
    > join MEMBER [topics=a,b] [owned=…] [instance=I]       classic protocol; `-` is nobody yet
    > sync MEMBER GENERATION, heartbeat MEMBER GENERATION, leave MEMBER
    > delete, advance MS, restart, refuse ERROR, settings KEY=VALUE

The group is always `g`. Targets are computed at most once a second, as by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pykbroker.coordinator.group import records
from pykbroker.coordinator.group.consumer.consumer_member import AssignedPartitions
from pykbroker.coordinator.group.settings import GroupSettings, Migration
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from pykbroker_wire.messages.consumer_protocol import AssignmentTopicPartition, ConsumerProtocolAssignment
from pykbroker_wire.messages.heartbeat import HeartbeatResponse
from pykbroker_wire.messages.join_group import JoinGroupResponse
from pykbroker_wire.messages.leave_group import LeaveGroupResponse
from pykbroker_wire.messages.sync_group import SyncGroupResponse
from pykbroker_wire.primitives import Message
from tests.coordinator.conversation import Conversation, retell, stories
from tests.coordinator.group.consumers import ConsumerBench, Partitions, embedded, given, topic_name
from tests.coordinator.group.harness import START_MS, Refused, classic_groups, consumer_groups


class ConsumerConversation(Conversation):
    """Runs commands and prints their results."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = ConsumerBench(GroupSettings(initial_rebalance_delay_ms=0))
        self.told = 0

    # -- commands -----------------------------------------------------------------------------------------------------

    def do_settings(self, plain: list[str], options: dict[str, str]) -> None:
        values: dict[str, Any] = {
            key: Migration(value) if key == "migration" else int(value) for key, value in options.items()
        }
        self.bench = ConsumerBench(GroupSettings(initial_rebalance_delay_ms=0, **values))

    def do_topic(self, plain: list[str], options: dict[str, str]) -> None:
        self.bench.create(plain[0], partitions=int(plain[1]))

    def do_drop(self, plain: list[str], options: dict[str, str]) -> None:
        self.bench.delete(*plain)

    def do_beat(self, plain: list[str], options: dict[str, str]) -> None:
        topics = options.get("topics")
        answer = self.bench.beat(
            plain[0],
            int(plain[1]),
            topics=None if topics is None else [name for name in topics.split(",") if name],
            regex=options.get("regex"),
            owned=_partitions(options["owned"]) if "owned" in options else None,
            instance=options.get("instance"),
            rebalance_ms=int(options.get("rebalance", -1)),
            assignor=options.get("assignor"),
        )
        self._say(f"  {self._answer(answer)}")

    def do_enter(self, plain: list[str], options: dict[str, str]) -> None:
        first = {"owned": "-", "rebalance": "60000"} | ({} if "regex" in options else {"topics": "t"})
        self.do_beat([plain[0], "0"], first | options)

    def do_join(self, plain: list[str], options: dict[str, str]) -> None:
        metadata = embedded(*options.get("topics", "t").split(","), owned=_partitions(options.get("owned", "-")))
        self.bench.join(
            "g",
            "" if plain[0] == "-" else plain[0],
            instance=options.get("instance"),
            protocols={"range": metadata},
            session_ms=30_000,
        )

    def do_sync(self, plain: list[str], options: dict[str, str]) -> None:
        """A leader gives each member that it names a whole assignment: `sync a 1 a=t-0,t-1 b=-`."""
        assignments = {member: _embedded_assignment(_partitions(text)) for member, text in options.items()}
        self.bench.sync("g", plain[0], int(plain[1]), assignments)

    def do_heartbeat(self, plain: list[str], options: dict[str, str]) -> None:
        self.bench.heartbeat("g", plain[0], int(plain[1]))

    def do_leave(self, plain: list[str], options: dict[str, str]) -> None:
        self.bench.leave("g", (plain[0], None))

    def do_delete(self, plain: list[str], options: dict[str, str]) -> None:
        (result,) = self.bench.ask(lambda shard, token, now_ms: shard.delete_groups(["g"], token, now_ms))
        self._say(f"  deleted: {ErrorCode(result.error_code).name}")

    def do_advance(self, plain: list[str], options: dict[str, str]) -> None:
        self.bench.advance(int(plain[0]))

    def do_restart(self, plain: list[str], options: dict[str, str]) -> None:
        self.bench = self.bench.restart()

    def do_refuse(self, plain: list[str], options: dict[str, str]) -> None:
        self.bench.refuse_next = ErrorCode[plain[0]]

    # -- results -------------------------------------------------------------------------------------------------------

    def _answer(self, answer: Any) -> str:
        match answer:
            case Refused():
                why = self.bench.last_error
                self.bench.last_error = None
                return f"{answer.error_code.name}{'' if why is None else ': ' + why.message}"
            case ConsumerGroupHeartbeatResponse():
                told = given(answer)
                assignment = "as before" if told is None else _list(told)
                return f"member={answer.member_id} epoch={answer.member_epoch} assignment: {assignment}"
            case JoinGroupResponse():
                error = ErrorCode(answer.error_code).name
                return f"join {error} member={answer.member_id} generation={answer.generation_id}"
            case SyncGroupResponse():
                error = ErrorCode(answer.error_code).name
                return f"sync {error} assignment: {_list(_read_assignment(answer.assignment))}"
            case HeartbeatResponse():
                return f"heartbeat {ErrorCode(answer.error_code).name}"
            case LeaveGroupResponse():
                return "leave " + " ".join(ErrorCode(member.error_code).name for member in answer.members)
        raise AssertionError(answer)

    def _tell(self) -> None:
        for token in list(self.bench.answers):
            self._say(f"  #{token} {self._answer(self.bench.answers.pop(token))}")
        for key, value in self.bench.log[self.told :]:
            self._say(f"  log: {_record(key, value)}")
        self.told = len(self.bench.log)
        for group in consumer_groups(self.bench.shard).values():
            self._say(f"  {group.state.value} epoch={group.epoch} target={group.target_epoch}")
            for member in group.members.values():
                parts = [
                    f"{member.member_id} epoch={member.epoch} (was {member.previous_epoch}) {member.state.name}",
                    f"instance={member.instance_id}" if member.instance_id else "",
                    "classic" if member.classic else "",
                    f"has {_epochs(member.assigned)}",
                    f"revokes {_epochs(member.revoking)}" if member.revoking else "",
                    f"target {_list(_flat(group.target.get(member.member_id, {})))}",
                ]
                self._say("    " + " ".join(part for part in parts if part))
        for classic in classic_groups(self.bench.shard).values():
            self._say(f"  classic {classic.state.value} generation={classic.generation} leader={classic.leader}")
            for name, one in classic.members.items():
                waits = " waits" if one.awaiting_join is not None or one.awaiting_sync is not None else ""
                self._say(f"    {name} has {_list(_read_assignment(one.assignment))}{waits}")
        for timer, left_ms in self.bench.timers():
            if timer != ("expire",):
                self._say(f"  timer: {' '.join(timer)} in {left_ms} ms")


def _partitions(text: str) -> Partitions:
    return {
        (topic, int(partition))
        for topic, _, partition in (one.rpartition("-") for one in text.split(",") if one not in ("-", ""))
    }


def _list(partitions: Partitions) -> str:
    return ",".join(f"{topic}-{partition}" for topic, partition in sorted(partitions)) or "-"


def _flat(target: Mapping[bytes, Any]) -> Partitions:
    return {(topic_name(topic_id), partition) for topic_id, partitions in target.items() for partition in partitions}


def _epochs(assigned: AssignedPartitions) -> str:
    return (
        ",".join(
            f"{topic_name(topic_id)}-{partition}@{since}"
            for topic_id, partitions in assigned.items()
            for partition, since in sorted(partitions.items())
        )
        or "-"
    )


def _embedded_assignment(partitions: Partitions) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            AssignmentTopicPartition(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()
        ]
    )
    return b"\0\1" + message.encode_bytes(1)


def _read_assignment(data: bytes) -> Partitions:
    if not data:
        return set()
    message, _ = ConsumerProtocolAssignment.decode(data, 2, int.from_bytes(data[:2], "big"))
    return {(topic.topic, partition) for topic in message.assigned_partitions for partition in topic.partitions}


def _record(key: bytes, value: bytes | None) -> str:
    record = records.decode(key, value)
    assert record is not None
    name = type(record.key).__name__.removesuffix("Key").removeprefix("ConsumerGroup") or "Group"
    who = " ".join(_field(record.key, field) for field in record.key.__slots__ if field not in ("group_id", "group"))
    if not isinstance(record.value, Message):
        return f"{name} {who} deleted".replace("  ", " ")
    fields = " ".join(f"{field}={_field(record.value, field)}" for field in record.value.__slots__)
    return f"{name} {who}: {fields}".replace(" :", ":")


def _field(message: Message, name: str) -> str:
    return _plain(getattr(message, name), name)


def _plain(value: Any, name: str = "") -> str:
    if name == "metadata_hash":
        return "0" if value == 0 else "H"
    if name in ("assignment_timestamp", "timestamp", "current_state_timestamp") and value > 0:
        return f"+{value - START_MS}"
    if name == "topic_id":
        return topic_name(value)
    if isinstance(value, list):
        return "[" + ",".join(_plain(one) for one in value) + "]"
    if isinstance(value, Message):
        return "(" + " ".join(_field(value, field) for field in value.__slots__) + ")"
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


@pytest.mark.parametrize("path", stories("consumer_groups"), ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    retell(path, ConsumerConversation())
