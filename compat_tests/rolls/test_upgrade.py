"""Three nodes go one by one from an earlier build to this one under load, then back, and then forward again.

librdkafka and the Java client work during this time, with their defaults. No application receives an error, and what
was acknowledged is read once. With `--against apache-kafka` the nodes of Apache Kafka are restarted in the same way.

One error is counted and forgiven if the earlier build or Apache Kafka may have answered, namely the answer to a commit
that its coordinator loads. This build lets the commit wait for the load (pykbroker/coordinator/held_requests.py).

Short transactions of Java get errors on three nodes of the earlier build even without a restart. So they begin when the
nodes have come to this build, and then the nodes are restarted once more with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from compat_tests.exactly_once.short_transactions import Task, Transactions
from compat_tests.exactly_once.three_nodes import NUMBERS, REPLICATED
from compat_tests.mixed_cluster.members import Cluster, Kind, Member
from compat_tests.rolls.builds import earlier
from compat_tests.rolls.load import JAVA, LOADS, JavaLoad, Load
from testkit.clients import wait_until
from testkit.oracle.kafka import kafka_libs

#: The build before a node had two event loops, and before its directory kept the sign of a clean stop.
EARLIER = "e61dd17"


@pytest.fixture
def cluster(against: str) -> Iterator[Cluster]:
    kafka_libs()
    kind: Kind = "kafka" if against == "apache-kafka" else "pykbroker"
    with Cluster({number: Member(kind) for number in NUMBERS}, settings=REPLICATED, directories=1) as cluster:
        yield cluster


def goes_to(cluster: Cluster, load: Load, number: int, build: Path | None) -> None:
    """Restart a node with a build, and make it lead its topics again."""
    cluster.stop(number)
    if build is None:
        cluster.pythons.pop(number, None)
    else:
        cluster.pythons[number] = build
    cluster.start(number)
    cluster.in_sync(*load.topics, JAVA, "__consumer_offsets", "__transaction_state")
    load.leads_again(number)


@pytest.mark.long(amount="twelve restarts of three nodes: there, back, there again, and once more")
@pytest.mark.timeout(1200)
def test_no_client_is_told_of_an_upgrade_or_of_the_way_back(cluster: Cluster, against: str, tmp_path: Path) -> None:
    build = earlier(EARLIER)
    cluster.pythons = dict.fromkeys(NUMBERS, build)
    cluster.format()
    cluster.start_all()
    cluster.serving(*NUMBERS)
    load = Load(cluster)
    with closing(JavaLoad(cluster, tmp_path)) as java, closing(load):
        load.goes_on()
        wait_until(java.read, "the Java clients work")
        for next_build in (None, build, None):
            for number in NUMBERS:
                goes_to(cluster, load, number, next_build)
                load.goes_on()
        forgiven = load.forgive(LOADS)
        with closing(Transactions(cluster, Task(producers=3, records=6, seconds=20))) as transactions:
            for number in NUMBERS:
                goes_to(cluster, load, number, None)
                load.goes_on()
            outcome = transactions.end()
            transactions.check_records(outcome)
        if against == "apache-kafka":
            forgiven += load.forgive(LOADS)
        print(f"{forgiven} commits of librdkafka were told that their coordinator loads")
        load.finish()
        java.finish()
    print(f"{len(outcome.committed)} transactions of Java, errors {outcome.errors}, {outcome.fatal}")
    assert (outcome.errors, outcome.fatal, outcome.in_doubt) == ({}, {}, [])
    cluster.stop(*NUMBERS)
    assert not cluster.complaints()
