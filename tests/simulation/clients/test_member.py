"""The events that a member records in the history, and when."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

from pykbroker_wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)
from pykbroker_worlds.history.events import Beat
from tests.simulation.clients.member import ConsumerMember
from tests.simulation.stage import Stage

TOPIC_ID = bytes(15) + b"\x01"


def test_a_heartbeat_ends_when_its_answer_comes_not_when_its_topics_are_known() -> None:
    stage = Stage(0)
    history = stage.history
    member = ConsumerMember(stage.cluster, history, "member", "group", [("orders", 0)])
    part = ResponseTopicPartitions(topic_id=TOPIC_ID, partitions=[0])
    answer = ConsumerGroupHeartbeatResponse(member_epoch=1, assignment=Assignment(topic_partitions=[part]))
    looked_up = 0

    async def ask_coordinator(*_: Any) -> ConsumerGroupHeartbeatResponse:
        return answer

    async def name_of(topic_id: bytes) -> str:
        nonlocal looked_up
        assert topic_id == TOPIC_ID
        # Other clients continue in the meantime.
        looked_up = history.now()
        return "orders"

    async def run() -> None:
        member._new()
        assert await member._beat(full=True)

    with (
        mock.patch.object(member, "ask_coordinator", ask_coordinator),
        mock.patch.object(member, "name_of", name_of),
    ):
        asyncio.run(run())
    (beat,) = history.of(Beat)
    assert beat.started < beat.ended < looked_up
    assert beat.assigned == member.owned == {("orders", 0)}
