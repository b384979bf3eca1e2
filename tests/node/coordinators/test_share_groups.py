"""Share groups of a whole node: members that join, administrators, and the feature that switches them on.

The group coordinator asks the share coordinator of the same node, over the node's listener. The times are those of a
virtual clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest

from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.api_versions import ApiVersionsRequest
from pykbroker_wire.messages.delete_groups import DeleteGroupsRequest
from pykbroker_wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from pykbroker_wire.messages.describe_groups import DescribeGroupsRequest
from pykbroker_wire.messages.list_groups import ListGroupsRequest
from pykbroker_wire.messages.share_group_describe import ShareGroupDescribeRequest
from pykbroker_wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from pykbroker_wire.messages.write_share_group_state import StateBatch
from testkit.nodes.share_groups import alter_offsets, beat, offsets, ready, told
from testkit.nodes.sim import Sim, playing
from testkit.promises import results

T = TypeVar("T")
Play = Callable[..., Any]
STATE = "__share_group_state"
PREFIX = "share.coordinator.state.topic"
ONE = {
    f"{PREFIX}.num.partitions": "1",
    f"{PREFIX}.min.isr": "1",
    "offsets.topic.num.partitions": "1",
}


@pytest.fixture
def play() -> Iterator[Play]:
    """`play(scenario, {key: value})` on a separate node, with topic t of four partitions and a group coordinator."""

    def run(scenario: Callable[[Sim], Awaitable[T]], config: dict[str, str] | None = None) -> T:
        async def prepared(sim: Sim) -> T:
            await sim.create("t", partitions=4)
            await ready(sim)
            return await scenario(sim)

        played: T = on_its_own(prepared, config)
        return played

    with playing(ONE) as on_its_own:
        yield run


async def delete_group(sim: Sim, group: str = "g") -> int:
    (result,) = (await sim.call(DeleteGroupsRequest(groups_names=[group]))).results
    code: int = result.error_code
    return code


async def listed(sim: Sim) -> dict[str, tuple[str, str, str]]:
    groups = (await sim.call(ListGroupsRequest())).groups
    return {each.group_id: (each.group_type, each.protocol_type, each.group_state) for each in groups}


async def seconds_of_a_join(sim: Sim, member: str, group: str = "g") -> tuple[float, list[int] | None]:
    began = sim.world.loop.time()
    answer = await beat(sim, member, group=group)
    assert answer.error_code == ErrorCode.NONE, answer
    return sim.world.loop.time() - began, told(answer)


def test_the_first_join_is_answered_with_the_assignment(play: Play) -> None:
    """The first answer of Apache Kafka has no partitions, and the next heartbeat comes after five seconds."""

    async def scenario(sim: Sim) -> list[tuple[float, list[int] | None]]:
        assert STATE not in sim.node.loader.image.topics.by_name
        # The first join makes the topic with the states.
        found = [await seconds_of_a_join(sim, "a")]
        found.append(await seconds_of_a_join(sim, "b", group="other"))
        return found

    (first, all_of_it), (second, again) = play(scenario)
    assert all_of_it == again == [0, 1, 2, 3]
    assert first < 1.2
    assert second < 0.1


def test_members_that_join_together_get_their_parts_within_the_assignment_interval(play: Play) -> None:
    async def scenario(sim: Sim) -> tuple[list[int], float]:
        began = sim.world.loop.time()
        answers = await asyncio.gather(*(beat(sim, member) for member in "abcd"))
        assert {answer.error_code for answer in answers} == {ErrorCode.NONE}
        seconds = sim.world.loop.time() - began
        epochs = {member: answer.member_epoch for member, answer in zip("abcd", answers, strict=True)}
        parts = []
        for member, epoch in epochs.items():
            parts += told(await beat(sim, member, epoch, topics=["t"])) or []
        return sorted(parts), seconds

    parts, seconds = play(scenario)
    assert parts == [0, 1, 2, 3]
    assert seconds < 1.5


def test_a_join_ends_with_its_connection(play: Play) -> None:
    async def scenario(sim: Sim) -> int:
        other = asyncio.ensure_future(beat(sim, "a"))
        await asyncio.sleep(0.2)
        sim._connection.close()
        with pytest.raises(ConnectionError):
            await other
        await asyncio.sleep(0.2)
        host = sim.node.services.groups.coordinator._hosts[0]
        return len(host.requests)

    # Three brokers will never be there, so the join waits for its share coordinator.
    assert play(scenario, {f"{PREFIX}.replication.factor": "3"}) == 0


def test_a_group_from_its_first_member_to_its_end(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        first = await beat(sim, "a")
        assert (first.member_id, first.member_epoch) == ("a", 2)
        assert await listed(sim) == {"g": ("share", "share", "Stable")}
        (described,) = (await sim.call(ShareGroupDescribeRequest(group_ids=["g"]))).groups
        assert (described.error_code, described.group_state, described.assignor_name) == (0, "Stable", "simple")
        (member,) = described.members
        assert (member.member_id, member.client_id, member.subscribed_topic_names) == ("a", "client", ["t"])
        (topic,) = member.assignment.topic_partitions
        assert (topic.topic_name, topic.partitions) == ("t", [0, 1, 2, 3])
        # To the requests of other groups it is no group of theirs.
        (classic,) = (await sim.call(DescribeGroupsRequest(groups=["g"]))).groups
        assert (classic.error_code, classic.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")

        assert (await alter_offsets(sim, {0: 3})).error_code == ErrorCode.NON_EMPTY_GROUP
        assert await delete_group(sim) == ErrorCode.NON_EMPTY_GROUP
        assert (await beat(sim, "a", -1)).error_code == ErrorCode.NONE
        assert await listed(sim) == {"g": ("share", "share", "Empty")}
        assert await delete_group(sim) == ErrorCode.NONE
        assert await listed(sim) == {}
        assert await offsets(sim) == {}

    play(scenario)


def test_offsets_with_their_lag(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        for _ in range(10):
            await sim.send("t", b"v")
        await beat(sim, "a")
        unknown = (-1, -1, ErrorCode.NONE)
        assert await offsets(sim) == dict.fromkeys(range(4), unknown)
        await beat(sim, "a", -1)
        answer = await alter_offsets(sim, {0: 2, 1: 0, 9: 0})
        assert [each.error_code for each in answer.responses[0].partitions] == [
            ErrorCode.NONE,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert await offsets(sim, 0, 1, 2) == {0: (2, 10 - 2, 0), 1: (0, 0, 0), 2: unknown}
        # The partition's leader has delivered offsets 2 and 3, and offset 5 beyond a record that is not done.
        key = SharePartitionKey("g", await sim.topic_id("t"), 0)
        persister = sim.node.broker.shares.persister
        batch = StateBatch(first_offset=5, last_offset=5, delivery_state=2, delivery_count=1)
        (state,) = await results([persister.read(key, 0)], 60)
        (written,) = await results([persister.write(key, state.state_epoch, 0, 4, 1, [batch])], 60)
        assert written.error is ErrorCode.NONE
        assert await offsets(sim, 0) == {0: (4, 10 - 4 - 1, 0)}

        topics = [DeleteShareGroupOffsetsRequestTopic(topic_name="t")]
        deleted = await sim.call(DeleteShareGroupOffsetsRequest(group_id="g", topics=topics))
        assert [each.error_code for each in deleted.responses] == [ErrorCode.NONE]
        assert await offsets(sim, 0) == {0: unknown}

    play(scenario)


def test_a_group_goes_on_after_a_restart(play: Play) -> None:
    async def scenario(sim: Sim) -> tuple[int, list[int] | None]:
        epoch = (await beat(sim, "a")).member_epoch
        await sim.sim_node.stop()
        await sim.sim_node.start()
        await ready(sim)
        # The member is known, and its next heartbeat has the assignment if it asks for it.
        answer = await beat(sim, "a", epoch, topics=["t"])
        return answer.error_code, told(answer)

    assert play(scenario) == (ErrorCode.NONE, [0, 1, 2, 3])


def test_a_factor_beyond_the_brokers_is_one_line_with_the_key(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(sim: Sim) -> list[int] | None:
        # The answer does not wait for a share coordinator that will not come.
        return told(await beat(sim, "a"))

    key = f"{PREFIX}.replication.factor"
    assert play(scenario, {key: "3"}) == []
    lines = [
        each.getMessage() for each in caplog.records if STATE in each.getMessage() and "failed" in each.getMessage()
    ]
    assert len(lines) == 1
    assert key in lines[0]


def test_the_feature_switches_share_groups_on_and_off(play: Play) -> None:
    async def level(sim: Sim, wanted: int) -> None:
        # 1 raises the level, 2 is a downgrade that loses nothing.
        update = FeatureUpdateKey(feature="share.version", max_version_level=wanted, upgrade_type=1 if wanted else 2)
        answer = await sim.call(UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[update]))
        assert answer.error_code == ErrorCode.NONE, answer

    async def advertised(sim: Sim) -> tuple[set[int], tuple[int, int], int]:
        answer = await sim.call(ApiVersionsRequest(client_software_name="c", client_software_version="1"))
        (supported,) = [each for each in answer.supported_features if each.name == "share.version"]
        finalized = {each.name: each.max_version_level for each in answer.finalized_features}
        keys = {each.api_key for each in answer.api_keys}
        return keys, (supported.min_version, supported.max_version), finalized.get("share.version", 0)

    async def scenario(sim: Sim) -> None:
        epoch = (await beat(sim, "a")).member_epoch
        keys, levels, finalized = await advertised(sim)
        assert {76, 77, 90, 91, 92} <= keys
        assert (levels, finalized) == ((0, 2), 1)
        await level(sim, 0)
        off = ErrorCode.UNSUPPORTED_VERSION
        assert (await beat(sim, "a", epoch)).error_code == off
        assert (await sim.call(ShareGroupDescribeRequest(group_ids=["g"]))).groups[0].error_code == off
        assert (await alter_offsets(sim, {0: 1})).error_code == off
        # Clients see the APIs, and that the feature is not finalised.
        assert await advertised(sim) == (keys, levels, 0)
        await level(sim, 1)
        assert (await beat(sim, "a", epoch)).error_code == ErrorCode.NONE

    play(scenario)
