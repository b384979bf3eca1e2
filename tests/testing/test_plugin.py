"""The pytest plugin: fixtures that work, also under xdist, and import nothing until they are used."""

from __future__ import annotations

from pathlib import Path

import pytest

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
            assert ours() <= {"pykbroker", "pykbroker.testing", "pykbroker.testing.pytest_plugin"}
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
            kafka_cluster.close()

        def test_another(kafka_cluster):
            assert kafka_cluster.running == (1, 2, 3)

        @pytest.mark.kafka_cluster(nodes=2, properties={"num.partitions": 5})
        def test_own(kafka_cluster, kafka_topics):
            assert kafka_cluster is not seen[0]
            assert kafka_cluster.nodes == (1, 2)
            with Wire(kafka_cluster.address(2)) as wire:
                assert wire.try_create(kafka_topics("t"), -1, -1, {}).num_partitions == 5
        """,
        "--strict-markers",
    )
    assert done.returncode == 0, done.stdout
