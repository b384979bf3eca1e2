"""Real clients live through a jump of the clock: the Java client, librdkafka and KafkaJS."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pykbroker
from compat_tests.built import npm_packages
from compat_tests.consumer_groups.clients import FOLDER, SESSION_TIMEOUT_MS, Programs, values
from compat_tests.consumer_groups.conftest import QUICK
from compat_tests.remote import Program, RemoteMember
from testkit import needs
from testkit.clients import wait_until


@pytest.mark.parametrize("family", ["java", "confluent-kafka"])
def test_members_lose_their_sessions_and_come_back(family: str, programs: Programs, against: str) -> None:
    lives_through_jumps(programs.shared(family), RemoteMember.assignment, against)


def test_a_member_of_kafkajs_comes_back(tmp_path: Path, against: str) -> None:
    node, folder = needs.program("node"), FOLDER / "kafkajs"
    packages = (f"NODE_PATH={npm_packages(folder)}", "KAFKAJS_NO_PARTITIONER_WARNING=1")
    program = Program(["env", *packages, node, str(folder / "client.js")], tmp_path / "stderr.log")
    lives_through_jumps(program, RemoteMember.partitions, against)
    program.close()


def lives_through_jumps(program: Program, owned: Callable[[RemoteMember], set[Any]], against: str) -> None:
    if against != "pykbroker":
        pytest.skip("the clock of this broker cannot be moved")
    with pykbroker.Broker({**QUICK, "group.initial.rebalance.delay.ms": 0}) as broker:
        topic = broker.create_topic("orders", partitions=2)
        broker.produce(topic, "one", partition=0)
        servers = broker.bootstrap_servers
        member = RemoteMember(program, servers, topic, "billing", SESSION_TIMEOUT_MS, protocol="classic")
        wait_until(lambda: len(owned(member)) == 2, "the member has both partitions")
        wait_until(lambda: values(member) == [b"one"], "the member reads")
        for by, value in (("1 min", "two"), ("10 min", "three")):
            (before,) = broker.group("billing").members
            broker.clock.advance(by)
            broker.produce(topic, value, partition=1)
            # Some clients join again only while they are asked for records.
            wait_until(lambda: values(member) and members(broker), "the member is back")
            assert members(broker) != [before.member_id]
            wait_until(lambda: len(owned(member)) == 2, "the member has both partitions again")
            wait_until(lambda value=value: value.encode() in values(member), f"the member reads {value}")  # type: ignore[misc]
        member.leave()


def members(broker: pykbroker.Broker) -> list[str]:
    return [one.member_id for group in broker.groups() for one in group.members]
