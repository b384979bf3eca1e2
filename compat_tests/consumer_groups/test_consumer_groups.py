"""Consumer groups of KIP-848 with real clients: the Java client, librdkafka and franz-go."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import ConsumerGroupType
from confluent_kafka.admin import NewPartitions

from compat_tests.conftest import FreshBroker
from compat_tests.consumer_groups.clients import FAMILIES, Party, Programs, await_shared, values
from compat_tests.consumer_groups.conftest import QUICK
from compat_tests.node import Node, make_killable_node
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.topics import Topics
from testkit.clients import NOW_MS, Record, wait_until
from testkit.standing_still import standing_still

each_family = pytest.mark.parametrize("family", FAMILIES)


class Writer:
    """Writes numbers, spread over the partitions of a topic."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self.written: set[bytes] = set()

    def write(self, count: int) -> set[bytes]:
        start = len(self.written)
        batch = [Record(None, b"%d" % i, (), NOW_MS + i, i % self._partitions) for i in range(start, start + count)]
        ConfluentClient().produce(self._bootstrap, self._topic, batch)
        new = {record.value or b"" for record in batch}
        self.written |= new
        return new


def group_type(topics: Topics, group: str) -> ConsumerGroupType:
    """Return the current type of the group."""
    listed = topics.admin.list_consumer_groups(request_timeout=30).result(30).valid
    found: ConsumerGroupType
    (found,) = [one.type for one in listed if one.group_id == group]
    return found


@each_family
def test_members_join_leave_and_die(family: str, party: Party, quick: Node, quick_topics: Topics) -> None:
    topic = quick_topics.create(partitions=6)
    group = f"group-{topic}"
    writer = Writer(quick.bootstrap, topic, 6)
    writer.write(60)
    first = party.join(family, group, topic)
    await_shared(topic, 6, first)
    wait_until(lambda: set(values(first)) == writer.written, "a lone member reads every record")

    second, process = party.mortal(family, group, topic)
    await_shared(topic, 6, first, second)
    third = party.join(family, group, topic)
    await_shared(topic, 6, first, second, third)
    writer.write(60)
    wait_until(lambda: set(values(first, second, third)) == writer.written, "three members read every record")
    assert len(values(first, second, third)) == 120, "each record was read once"

    third.leave()
    await_shared(topic, 6, first, second)
    process.kill()
    await_shared(topic, 6, first)
    new = writer.write(60)
    wait_until(lambda: new <= set(values(first)), "who is left reads every record")
    assert group_type(quick_topics, group) is ConsumerGroupType.CONSUMER
    first.leave()

    last = party.join(family, group, topic)
    new = writer.write(6)
    wait_until(lambda: new <= set(values(last)), "a later member reads what is new")
    assert set(values(last)) == new, "a later member starts where the group had committed"


# franz-go 1.22 leaves without naming its instance, which is an INVALID_REQUEST, and cannot join again for a while.
@pytest.mark.parametrize("family", ["java", "confluent-kafka"])
def test_a_static_member_comes_back_to_its_partitions(
    family: str, party: Party, quick: Node, quick_topics: Topics
) -> None:
    topic = quick_topics.create(partitions=5)
    group = f"group-{topic}"
    first = party.join(family, group, topic, instance="one")
    second = party.join(family, group, topic, instance="two")
    await_shared(topic, 5, first, second)
    before, others = first.assignment(), second.assignment()

    first.leave()  # a static member that stops is only absent for a while
    again = party.join(family, group, topic, instance="one")
    wait_until(lambda: again.assignment() == before, "the instance has its partitions again")
    assert second.assignment() == others, "nobody else noticed"

    again.leave()
    await_shared(topic, 5, second, timeout_s=30)  # its session timeout is over


@each_family
def test_partitions_are_added_and_the_topic_goes(family: str, party: Party, quick: Node, quick_topics: Topics) -> None:
    topic = quick_topics.create(partitions=2)
    group = f"group-{topic}"
    members = [party.join(family, group, topic, assignor="range") for _ in range(2)]
    await_shared(topic, 2, *members)
    quick_topics.admin.create_partitions([NewPartitions(topic, 5)])[topic].result(30)
    await_shared(topic, 5, *members)
    runs = sorted(sorted(partition for _, partition in member.assignment()) for member in members)
    assert runs == [[0, 1, 2], [3, 4]], "range gives neighbours"
    writer = Writer(quick.bootstrap, topic, 5)
    writer.write(50)
    wait_until(lambda: sorted(values(*members)) == sorted(writer.written), "every partition is read")


def test_patterns_find_topics_that_come_and_go(party: Party, quick_topics: Topics) -> None:
    """Tested together, because a coordinator resolves the patterns of a group again after ten seconds at the
    earliest."""
    prefix = quick_topics.name()
    present = quick_topics.create(partitions=2, name=f"{prefix}.a")
    quick_topics.create(partitions=2, name=f"x{prefix}.a")
    members = {
        "java": party.join("java", f"java-{prefix}", pattern=f"{prefix}[.](a|b+)"),
        "confluent-kafka": party.join("confluent-kafka", f"confluent-{prefix}", pattern=f"{prefix}[.](a|b+)$"),
        "franz-go": party.join("franz-go", f"go-{prefix}", pattern=f"^{prefix}[.](a|b+)$"),
    }

    def everybody_has(*topics: str) -> None:
        wanted = {(topic, number) for topic in topics for number in range(2)}
        for family, member in members.items():
            wait_until(lambda member=member: member.assignment() == wanted, f"{family} has {topics}")  # type: ignore[misc]

    everybody_has(present)
    later = quick_topics.create(partitions=2, name=f"{prefix}.bbb")
    quick_topics.create(partitions=2, name=f"{prefix}.ba")
    everybody_has(present, later)
    quick_topics.delete(present)
    everybody_has(later)


@pytest.mark.parametrize(
    ("family", "other"), [("java", "confluent-kafka"), ("confluent-kafka", "java"), ("java", "java")]
)
def test_a_group_goes_over_to_the_consumer_protocol_and_back(
    family: str, other: str, party: Party, quick: Node, quick_topics: Topics
) -> None:
    topic = quick_topics.create(partitions=4)
    group = f"group-{topic}"
    writer = Writer(quick.bootstrap, topic, 4)
    writer.write(40)
    classic = party.join(family, group, topic, protocol="classic")
    await_shared(topic, 4, classic)
    assert group_type(quick_topics, group) is ConsumerGroupType.CLASSIC
    wait_until(lambda: set(values(classic)) == writer.written, "the classic member reads")

    modern = party.join(other, group, topic)
    await_shared(topic, 4, classic, modern)
    assert group_type(quick_topics, group) is ConsumerGroupType.CONSUMER
    writer.write(40)
    wait_until(lambda: set(values(classic, modern)) == writer.written, "both read")

    modern.leave()
    await_shared(topic, 4, classic)
    assert group_type(quick_topics, group) is ConsumerGroupType.CLASSIC, (
        "the last modern member took the protocol along"
    )
    writer.write(40)
    wait_until(lambda: set(values(classic, modern)) == writer.written, "the classic member reads on")
    assert len(values(classic, modern)) == 120, "each record was read once"

    if family == "confluent-kafka":
        # librdkafka's list of its partitions when it joins once more is malformed for Apache Kafka, which does not
        # convert the group a second time: GROUP_ID_NOT_FOUND.
        return
    again = party.join(other, group, topic)
    await_shared(topic, 4, classic, again)
    classic.leave()
    await_shared(topic, 4, again)
    assert group_type(quick_topics, group) is ConsumerGroupType.CONSUMER
    new = writer.write(8)
    wait_until(lambda: new <= set(values(again)), "the modern member reads on")
    assert set(values(again)) == new


def test_members_of_all_families_share_a_group(party: Party, quick: Node, quick_topics: Topics) -> None:
    topic = quick_topics.create(partitions=9)
    group = f"group-{topic}"
    writer = Writer(quick.bootstrap, topic, 9)
    members = [party.join(family, group, topic) for family in FAMILIES]
    await_shared(topic, 9, *members)
    writer.write(90)
    wait_until(lambda: sorted(values(*members)) == sorted(writer.written), "each record is read once")
    members.pop().leave()
    await_shared(topic, 9, *members)


def test_a_group_outlives_its_coordinator(programs: Programs, against: str) -> None:
    """The broker is killed and restarted: the same members have the same partitions, and no record is read twice."""
    node = make_killable_node(against, QUICK).start()
    topic = Topics(node.bootstrap).create(partitions=6)
    writer = Writer(node.bootstrap, topic, 6)
    party = Party(programs, node.bootstrap)
    try:
        members = [party.join(family, f"group-{topic}", topic) for family in FAMILIES]
        await_shared(topic, 6, *members)
        before = [member.assignment() for member in members]
        writer.write(60)
        wait_until(lambda: sorted(values(*members)) == sorted(writer.written), "each record is read once")
        node.kill()
        node.start()
        writer.write(60)
        wait_until(lambda: sorted(values(*members)) == sorted(writer.written), "each record is read once")
        assert [member.assignment() for member in members] == before
    finally:
        party.close()
        node.close()


def test_c_a_member_whose_answer_was_lost_goes_on(programs: Programs, fresh_broker: FreshBroker, against: str) -> None:
    """librdkafka gives a heartbeat up after one interval, and the next one does not name its partitions. If the lost
    answer revoked some of them, other members wait for them until max.poll.interval.ms, with Apache Kafka."""
    if against == "apache-kafka":
        pytest.skip("Apache Kafka does not give the assignment again (docs/decisions/0015-repeated-assignments.md)")
    patient = {"group.consumer.heartbeat.interval.ms": "1000", "group.consumer.session.timeout.ms": "45000"}
    node = fresh_broker({**QUICK, **patient})
    topics = Topics(node.bootstrap)
    topic = topics.create(partitions=8)
    group = f"group-{topic}"
    party = Party(programs, node.bootstrap)
    try:
        first = party.join("confluent-kafka", group, topic)
        await_shared(topic, 8, first)
        second = party.join("confluent-kafka", group, topic)
        wait_until(lambda: members_of(topics, group) == 2, "the second member has joined")
        # The fault: the first member asks and gives up, and the broker answers to a closed connection.
        with standing_still(node.pid):
            time.sleep(2.5)
        await_shared(topic, 8, first, second)
        writer = Writer(node.bootstrap, topic, 8)
        writer.write(80)
        wait_until(lambda: sorted(values(first, second)) == sorted(writer.written), "each record is read once")
    finally:
        party.close()


def members_of(topics: Topics, group: str) -> int:
    described = topics.admin.describe_consumer_groups([group], request_timeout=30)[group].result(30)
    return len(described.members)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hundred_real_members(programs: Programs, fresh_broker: FreshBroker) -> None:
    """With Apache Kafka's own intervals. librdkafka has three threads for each member; franz-go is light enough for
    ninety-eight of them."""
    node = fresh_broker()
    topic = Topics(node.bootstrap).create(partitions=1000)
    party = Party(programs, node.bootstrap)
    try:
        families = ["java", "confluent-kafka", *["franz-go"] * 98]
        members = [party.join(family, f"group-{topic}", topic) for family in families]
        await_shared(topic, 1000, *members, timeout_s=240)
        writer = Writer(node.bootstrap, topic, 1000)
        # A member that the machine holds up for a session's time is out, and its partitions are read again.
        for _ in range(5):
            before = [member.assignment() for member in members]
            new = writer.write(3000)
            wait_until(lambda new=new: new <= set(values(*members)), "everything is read")  # type: ignore[misc]
            if [member.assignment() for member in members] == before:
                break
        else:
            pytest.fail("the members kept no assignment for as long as it takes to read 3,000 records")
        assert sorted(value for value in values(*members) if value in new) == sorted(new), "each record was read once"
        for member in members[50:]:
            member.leave()
        await_shared(topic, 1000, *members[:50], timeout_s=240)
    finally:
        party.close()
