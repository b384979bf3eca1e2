"""Real clients live through a jump of the clock: the Java client, librdkafka, franz-go and KafkaJS.

docs/testing.md says which of them must be made anew.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

import pykbroker
from compat_tests.built import npm_packages
from compat_tests.consumer_groups.clients import FOLDER, SESSION_TIMEOUT_MS, Programs, await_shared, values
from compat_tests.consumer_groups.conftest import QUICK
from compat_tests.remote import Program, RemoteMember
from pykbroker_wire.errors import ErrorCode
from testkit import needs
from testkit.clients import wait_until

FAMILIES = ("java", "confluent-kafka", "franz-go")
PROTOCOLS = ("classic", "consumer")
HEARTBEATS = {"classic": "Heartbeat", "consumer": "ConsumerGroupHeartbeat"}
NO_DELAY = {**QUICK, "group.initial.rebalance.delay.ms": 0}


@pytest.fixture(autouse=True)
def ours(against: str) -> None:
    if against != "pykbroker":
        pytest.skip("the clock of this broker cannot be moved")


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("family", FAMILIES)
def test_members_lose_their_sessions_and_come_back(family: str, protocol: str, programs: Programs) -> None:
    lives_through_jumps(programs.shared(family), RemoteMember.assignment, protocol)


def test_a_member_of_kafkajs_comes_back(tmp_path: Path) -> None:
    program = Program(kafkajs(), tmp_path / "stderr.log")
    lives_through_jumps(program, RemoteMember.partitions, "classic")
    program.close()


def kafkajs() -> list[str]:
    node, folder = needs.program("node"), FOLDER / "kafkajs"
    packages = (f"NODE_PATH={npm_packages(folder)}", "KAFKAJS_NO_PARTITIONER_WARNING=1")
    return ["env", *packages, str(node), str(folder / "client.js")]


def lives_through_jumps(program: Program, owned: Callable[[RemoteMember], set[Any]], protocol: str) -> None:
    with pykbroker.Broker(NO_DELAY) as broker:
        topic = broker.create_topic("orders", partitions=2)
        # A group with committed offsets stays when its last member is gone.
        commit_beginning(broker, "billing", topic)
        broker.produce(topic, "one", partition=0)
        member = joined(program, broker, topic, protocol)
        wait_until(lambda: len(owned(member)) == 2, "the member has both partitions")
        wait_until(lambda: values(member) == [b"one"], "the member reads")
        for by, value in (("1 min", "two"), ("10 min", "three")):
            with broker.recording():
                broker.clock.advance(by)
                broker.produce(topic, value, partition=1)
                # Some clients join again only while they are asked for records.
                wait_until(lambda: values(member) and is_back(broker), "the member has joined again")
            wait_until(lambda: len(owned(member)) == 2, "the member has both partitions again")
            wait_until(lambda value=value: value.encode() in values(member), f"the member reads {value}")  # type: ignore[misc]
        member.leave()


@pytest.mark.parametrize("protocols", [("classic",), ("consumer",), ("consumer", "classic")], ids=" and ".join)
def test_the_partitions_of_a_killed_java_member_are_taken_over(protocols: tuple[str, ...], programs: Programs) -> None:
    """Its session of 45 s ends, and the sessions of the living members do not."""
    config = {**NO_DELAY, "group.consumer.session.timeout.ms": 45_000}
    with pykbroker.Broker(config) as broker, ExitStack() as left:
        topic = broker.create_topic("orders", partitions=6)
        program = programs.own("java")
        killed = joined(program, broker, topic, protocols[0], session_timeout_ms=45_000)
        wait_until(lambda: killed.assignment(), "the first member has partitions")
        (before,) = members(broker)
        living = []
        for protocol in protocols:
            living.append(joined(programs.shared("java"), broker, topic, protocol, session_timeout_ms=45_000))
            left.callback(living[-1].leave)
        await_shared(topic, 6, killed, *living)
        program.kill()
        with broker.recording():
            broker.clock.advance("30s")
            assert before in members(broker)
            # They are new sessions of 45 s for the living members.
            for protocol in protocols:
                broker.faults.add(HEARTBEATS[protocol]).wait_for(3)
            broker.clock.advance("20s")
            assert before not in members(broker)
            await_shared(topic, 6, *living)
            assert errors(broker) <= {ErrorCode.REBALANCE_IN_PROGRESS}
        for number in range(6):
            broker.produce(topic, f"to {number}", partition=number)
        wait_until(
            lambda: sorted(values(*living)) == [b"to %d" % number for number in range(6)], "all records are read"
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_a_member_of_the_consumer_protocol_whose_group_is_gone(family: str, programs: Programs) -> None:
    """A group without members and committed offsets is gone when offsets expire. The Java client and librdkafka take
    GROUP_ID_NOT_FOUND as a fatal error, so they must be made anew."""
    with pykbroker.Broker(NO_DELAY) as broker:
        topic = broker.create_topic("orders")
        broker.produce(topic, "one")
        member = joined(programs.shared(family), broker, topic, "consumer")
        wait_until(lambda: values(member) == [b"one"], "the member reads")
        with broker.recording():
            until_its_group_is_gone(broker)
            if family == "franz-go":
                broker.produce(topic, "two")
                wait_until(
                    lambda: values(member) and is_back(broker, ErrorCode.GROUP_ID_NOT_FOUND), "the member is back"
                )
                wait_until(lambda: b"two" in values(member), "the member reads")
                member.leave()
                return
            with pytest.raises(AssertionError, match=r"GROUP_ID_NOT_FOUND|does not exist|not found"):
                wait_until(lambda: values(member) == [], "the member ends")
            assert ErrorCode.GROUP_ID_NOT_FOUND in errors(broker)
        anew = joined(programs.shared(family), broker, topic, "consumer")
        wait_until(lambda: values(anew) == [b"one"], "a new member reads")
        anew.leave()


def joined(
    program: Program,
    broker: pykbroker.Broker,
    topic: str,
    protocol: str,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
) -> RemoteMember:
    servers = broker.bootstrap_servers
    return RemoteMember(program, servers, topic, "billing", session_timeout_ms, protocol=protocol, may_end="yes")


def commit_beginning(broker: pykbroker.Broker, group: str, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, number, 0) for number in range(2)], asynchronous=False)
    consumer.close()


def errors(broker: pykbroker.Broker) -> set[int]:
    """Return the errors in the answers to the recorded requests."""
    return {code for one in broker.requests() for code in one.errors or ()}


def until_its_group_is_gone(broker: pykbroker.Broker) -> None:
    """Advance until the member has learned that its group is gone. A heartbeat between two steps of an advance
    lets it join again, and then its group stays."""
    learned = {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_MEMBER_ID}

    def has_learned(since: int) -> bool:
        return any(learned & {*(one.errors or ())} for one in broker.requests()[since:])

    for _ in range(5):
        seen = len(broker.requests())
        broker.clock.advance("11 min")
        wait_until(partial(has_learned, seen), "the member learns it")
        if ErrorCode.GROUP_ID_NOT_FOUND in errors(broker):
            return
        wait_until(lambda: is_back(broker), "the member is back")
    raise AssertionError("the member always joined again during the advance")


def is_back(broker: pykbroker.Broker, error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> bool:
    """Return True if the recorded requests have this error, and after the last of them the positions of a new
    assignment. A member that has not come so far still reads with its old one. Before that, the Java client raises
    UnknownMemberIdException from `poll` if its new session ends too."""
    requests = broker.requests()
    lost = [number for number, one in enumerate(requests) if error in (one.errors or ())]
    return bool(lost) and any(one.api == "OffsetFetch" and one.errors == () for one in requests[lost[-1] :])


def members(broker: pykbroker.Broker) -> list[str]:
    return [one.member_id for group in broker.groups() for one in group.members]
