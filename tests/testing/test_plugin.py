"""The pytest plugin: fixtures that work, also under xdist, and import nothing until they are used."""

from __future__ import annotations

import inspect
import re
import socket
from contextlib import closing
from pathlib import Path

import pytest

from pykbroker.testing import Broker, Cluster, SecureBroker, SecureCluster
from pykbroker.testing.pytest_plugin import _OLD_ARGUMENTS, MARKS
from testkit.plugin_runs import run_pytest


@pytest.mark.slow
def test_nothing_is_imported_until_a_fixture_is_used(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        """
        import sys

        def ours():
            return {name for name in sys.modules if name.partition(".")[0].startswith("pykbroker")}

        def test_before():
            plugins = {"pykbroker.testing.pytest_plugin", "pykbroker_worlds.pytest_plugin"}
            assert ours() <= {"pykbroker", "pykbroker.testing", "pykbroker_worlds"} | plugins
            assert "uvloop" not in sys.modules

        def test_names_alone_need_no_broker(kafka_topics):
            assert kafka_topics("a") != kafka_topics("b")
            assert "pykbroker.node.node" not in sys.modules

        def test_after(kafka_broker):
            assert "pykbroker.node.node" in sys.modules
        """,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_each_worker_has_its_broker_and_each_test_its_topics(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        """
        import pytest
        from testkit.nodes.wire import Wire, batch

        @pytest.mark.parametrize("number", range(4))
        def test_own_topics(kafka_broker, kafka_topics, number):
            with Wire(kafka_broker.bootstrap_servers) as wire:
                name = kafka_topics("orders")
                wire.create(name, partitions=1)
                wire.produce(name, batch(b"%d" % number))
                assert wire.values(name) == [b"%d" % number]
        """,
        "-n",
        "2",
    )
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


@pytest.mark.slow
def test_each_test_finds_the_cluster_whole_and_may_have_one_of_its_own(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        """
        import pytest
        from testkit.nodes.wire import Wire, batch

        seen = []

        def test_disturbed(kafka_cluster, kafka_topics):
            seen.append(kafka_cluster)
            with Wire(kafka_cluster.address(1)) as wire:
                wire.create(kafka_topics("orders"), partitions=1, replication=3)
            kafka_cluster.kill(1)
            kafka_cluster.pause(2)
            kafka_cluster.partition_network([2, 3])

        def test_whole(kafka_cluster):
            assert kafka_cluster is seen[0]
            assert kafka_cluster.running == (1, 2, 3)
            assert not kafka_cluster.paused
            kafka_cluster.wait_until_in_sync(timeout_seconds=0)

        def test_closed_by_a_test(kafka_cluster):
            kafka_cluster.stop()

        def test_another(kafka_cluster):
            assert kafka_cluster.running == (1, 2, 3)

        @pytest.mark.kafka_cluster(nodes=2, config={"num.partitions": 5})
        def test_own(kafka_cluster, kafka_topics):
            assert kafka_cluster is not seen[0]
            assert kafka_cluster.nodes == (1, 2)
            with Wire(kafka_cluster.address(2)) as wire:
                assert wire.try_create(kafka_topics("t"), -1, -1, {}).num_partitions == 5
        """,
        "--strict-markers",
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_a_mark_gives_a_test_a_broker_of_its_own(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        """
        import pytest
        from pykbroker.testing import KafkaError

        @pytest.fixture(scope="session")
        def orders(kafka_broker):
            return kafka_broker.create_topic("orders")

        def test_shared(kafka_broker, orders, kafka_topics):
            kafka_broker.create_topic(kafka_topics("shared"))
            assert "orders" in kafka_broker.topics()

        @pytest.mark.kafka_broker(config={"num.partitions": 7}, record=True)
        @pytest.mark.parametrize("number", range(2))
        def test_own(kafka_broker, kafka_faults, number):
            assert kafka_broker.topics() == {}
            kafka_broker.create_topic("mine", -1)
            assert kafka_broker.topics() == {"mine": 7}
            assert kafka_broker.requests() == []
            assert kafka_faults is kafka_broker.faults

        @pytest.mark.kafka_broker
        @pytest.mark.xfail(reason="a broker of one test is no part of a fixture of the session", strict=True)
        def test_a_fixture_of_a_wider_scope(kafka_broker, orders):
            pass

        def test_shared_again(kafka_broker, orders):
            assert "mine" not in kafka_broker.topics()

        @pytest.mark.kafka_broker(config={"num.partitions": 3})
        class TestClass:
            def test_in_a_class(self, kafka_broker):
                kafka_broker.create_topic("t", -1)
                assert kafka_broker.topics() == {"t": 3}

            def test_without_a_broker(self):
                pass
        """,
        "--strict-markers",
    )
    assert done.returncode == 0, done.stdout
    assert "6 passed, 1 xfailed" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("fixture", MARKS)
def test_an_argument_that_no_mark_has_is_an_error_that_names_those_that_exist(tmp_path: Path, fixture: str) -> None:
    done = run_pytest(
        tmp_path,
        f"""
        import pytest

        @pytest.mark.{fixture}(confg={{}})
        def test_it({fixture}):
            pass
        """,
    )
    assert done.returncode == 1
    assert (
        f"the mark {fixture} is not possible: got an unexpected keyword argument 'confg'; its arguments are"
        in done.stdout
    )
    for name in re.findall(r"(\w+)=", MARKS[fixture]):
        assert name in done.stdout.partition("its arguments are ")[2].splitlines()[0]


@pytest.mark.slow
def test_a_mark_without_its_fixture_is_an_error(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        """
        import pytest

        @pytest.mark.kafka_broker(config={})
        def test_it():
            pass
        """,
    )
    assert done.returncode == 4
    assert "test_it has the mark kafka_broker, and does not take the fixture kafka_broker" in done.stderr


def test_the_marks_have_the_arguments_of_their_classes() -> None:
    makes = {
        "kafka_broker": Broker,
        "kafka_broker_secure": SecureBroker,
        "kafka_cluster": Cluster,
        "kafka_cluster_secure": SecureCluster,
    }
    assert makes.keys() == MARKS.keys()
    for fixture, make in makes.items():
        names = [name for name in inspect.signature(make).parameters if name not in _OLD_ARGUMENTS]
        assert re.findall(r"(\w+)=", MARKS[fixture]) == names


@pytest.mark.slow
def test_the_same_tests_on_a_cluster_that_runs_already(tmp_path: Path) -> None:
    with Broker() as broker:
        done = run_pytest(
            tmp_path,
            """
            import asyncio
            import pytest

            def test_records(kafka_broker, kafka_topics):
                orders = kafka_broker.create_topic(kafka_topics("orders"))
                kafka_broker.produce(orders, "one")
                assert [one.value for one in kafka_broker.wait_for_records(orders, 1)] == [b"one"]

            def test_faults(kafka_faults):
                raise AssertionError

            def test_cluster(kafka_cluster):
                raise AssertionError

            def test_secure(kafka_broker_secure):
                raise AssertionError

            def test_both(kafka_cluster_secure):
                raise AssertionError

            @pytest.mark.kafka_broker(config={"num.partitions": 7})
            def test_own(kafka_broker):
                raise AssertionError

            def test_metrics(kafka_broker):
                kafka_broker.metrics()

            @pytest.fixture
            def prepared(kafka_broker):
                kafka_broker.faults.add("Produce")

            def test_a_fixture_that_needs_a_node(prepared):
                raise AssertionError
            """,
            *("-rs", "-n", "2", "--kafka-bootstrap", broker.bootstrap_servers),
        )
        assert done.returncode == 0, done.stdout
        assert "1 passed, 7 skipped" in done.stdout
        for word in (
            *("kafka_faults", "kafka_cluster", "kafka_broker_secure", "kafka_cluster_secure", "the mark kafka_broker"),
            *("kafka_broker.metrics", "kafka_broker.faults"),
        ):
            assert f"{word} needs a broker in this process, and " in " ".join(done.stdout.split()), word
        assert broker.topics() == {}


@pytest.mark.slow
def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run_pytest(tmp_path, "def test_it(kafka_broker): pass", "--kafka-bootstrap", address)
    assert done.returncode == 1
    assert f"ConnectionError: no broker answers at {address}" in done.stdout


@pytest.mark.slow
def test_each_worker_begins_with_a_copy_of_a_prepared_state(tmp_path: Path) -> None:
    """Workers share no state, and each test finds the prepared one after a reset."""
    prepared = tmp_path / "prepared"
    with Broker(data_dir=prepared) as broker:
        broker.create_topic("customers")
        broker.produce("customers", b"c-1")
    done = run_pytest(
        tmp_path,
        """
        import pytest

        @pytest.fixture(autouse=True)
        def again(kafka_broker):
            kafka_broker.reset()

        @pytest.mark.parametrize("number", range(12))
        def test_finds_what_was_prepared(kafka_broker, number):
            assert kafka_broker.topics() == {"customers": 1}
            assert [record.value for record in kafka_broker.records("customers")] == [b"c-1"]
            kafka_broker.produce("customers", b"%d" % number)
            kafka_broker.create_topic(f"of-{number}")
        """,
        "-n",
        "2",
        f"--kafka-state={prepared}",
    )
    assert done.returncode == 0, done.stdout
    assert "12 passed" in done.stdout
    with Broker(data_dir=prepared) as broker:
        assert [record.value for record in broker.records("customers")] == [b"c-1"]


def test_a_state_beside_a_cluster_that_runs_already_is_refused(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, "def test(): pass", "--kafka-state=/nowhere", "--kafka-bootstrap=localhost:9092")
    assert done.returncode == 4
    assert "--kafka-state has no effect" in done.stdout + done.stderr
