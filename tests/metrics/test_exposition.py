"""The text that Prometheus reads, read by its own client."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pykbroker.metrics.exposition import lines, named
from pykbroker.metrics.registry import Metrics, tag
from pykbroker.testing import Broker
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
    PartitionData,
)
from pykbroker_wire.messages.metadata import MetadataRequest
from pykbroker_wire.primitives import uuid_to_str
from testkit.nodes.nodes import eventually
from testkit.nodes.wire import Wire, batch
from testkit.share_requests import acquired, share_fetches


@pytest.mark.parametrize(
    ("mbean", "counts", "name", "labels"),
    [
        (
            "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec",
            True,
            "kafka_server_brokertopicmetrics_messagesin_total",
            "",
        ),
        (
            "kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Produce",
            True,
            "kafka_network_requestmetrics_totaltimems_total",
            'request="Produce"',
        ),
        (
            "kafka.server:type=socket-server-metrics,name=failed-authentication-total,listener=A,networkProcessor=0",
            True,
            "kafka_server_socket_server_metrics_failed_authentication_total",
            'listener="A",networkProcessor="0"',
        ),
        (
            "kafka.server:type=group-coordinator-metrics,name=offset-commit-count",
            True,
            "kafka_server_group_coordinator_metrics_offset_commit_count",
            "",
        ),
        (
            "kafka.log:type=LogCleaner,name=max-clean-time-secs",
            False,
            "kafka_log_logcleaner_max_clean_time_secs",
            "",
        ),
        (
            "kafka.log:type=Log,name=Size,topic=a.b,partition=3",
            False,
            "kafka_log_log_size",
            'topic="a.b",partition="3"',
        ),
        (
            'kafka.log:type=LogManager,name=LogDirectoryOffline,logDirectory=/a"\\b\nc',
            False,
            "kafka_log_logmanager_logdirectoryoffline",
            r'logDirectory="/a\"\\b\nc"',
        ),
    ],
)
def test_names(mbean: str, counts: bool, name: str, labels: str) -> None:
    assert named(mbean, counts=counts) == (name, labels)


def test_a_comma_in_a_value() -> None:
    found = named("kafka.log:type=LogManager,name=LogDirectoryOffline,logDirectory=/a,b/c", counts=False)
    assert found == ("kafka_log_logmanager_logdirectoryoffline", 'logDirectory="/a,b/c"')


@pytest.mark.parametrize(
    "group", ["a b-%.c", "", "a,topic=x", '"', "\\", '\\",x="y', "line\nline", "é*?", "n\\n", 'a="b",c="d"']
)
def test_a_value_that_clients_choose(group: str) -> None:
    """Without quotes it could add tags, and Prometheus would refuse the whole page."""
    metrics = Metrics()
    metrics.gauge(f"kafka.server:type=T,name=N,group={tag(group)},topic=t,partition=0", lambda: 1)
    (family,) = text_string_to_metric_families("".join(lines(metrics.samples())))
    assert [sample.labels for sample in family.samples] == [{"group": group, "topic": "t", "partition": "0"}]


def test_only_values_that_need_it_are_quoted() -> None:
    assert tag("a b-%.c") == "a b-%.c"
    assert tag("a:b") == '"a:b"', "as in Apache Kafka"


def test_a_histogram() -> None:
    metrics = Metrics()
    metrics.family(
        lambda: [
            ("kafka.server:type=T,name=Ms-count,group=g", 3),
            ("kafka.server:type=T,name=Ms,group=g,quantile=0.50", 7),
        ]
    )
    assert "".join(lines(metrics.samples())) == (
        "# TYPE kafka_server_t_ms gauge\n"
        'kafka_server_t_ms{group="g",quantile="0.50"} 7\n'
        "# TYPE kafka_server_t_ms_count counter\n"
        'kafka_server_t_ms_count{group="g"} 3\n'
    )


def test_a_topic_whose_name_is_that_of_a_rate() -> None:
    metrics = Metrics()
    metrics.gauge("kafka.log:type=Log,name=Size,topic=BytesInPerSec,partition=0", lambda: 7)
    metrics.gauge("kafka.server:type=FetchSessionCache,name=EvictionsPerSec", lambda: 8)
    assert [sample.counts for sample in metrics.samples()] == [False, True]


def test_a_counter_and_a_gauge() -> None:
    metrics = Metrics()
    metrics.counter("kafka.server:type=A,name=BPerSec").value = 1 << 60
    metrics.gauge("kafka.server:type=A,name=C,x=1", lambda: 0.25)
    metrics.gauge("kafka.server:type=A,name=C,x=2", lambda: 3)
    assert "".join(lines(metrics.samples())) == (
        "# TYPE kafka_server_a_b_total counter\n"
        "kafka_server_a_b_total 1.152921504606847e+18\n"
        "# TYPE kafka_server_a_c gauge\n"
        'kafka_server_a_c{x="1"} 0.25\n'
        'kafka_server_a_c{x="2"} 3\n'
    )


@pytest.mark.slow
def test_prometheus_reads_every_metric_of_a_node() -> None:
    with Broker({"pykbroker.create.topics": "a-b:2:1,a.c:1:1"}) as broker, Wire(broker.bootstrap_servers) as wire:
        fetch_of_a_share_group(wire, 'g,topic="x')
        assert broker._run is not None
        expected = broker._run.metrics()
        families = list(text_string_to_metric_families("".join(lines(expected))))
    names = [family.name for family in families]
    assert len(names) == len(set(names)), "the lines of a family stand together"
    samples = [sample for family in families for sample in family.samples]
    assert len(samples) == len(expected)
    assert {family.type for family in families} == {"counter", "gauge"}
    sizes = [sample.labels for sample in samples if sample.name == "kafka_log_log_size"]
    assert {"topic": "a-b", "partition": "1"} in sizes
    in_flight = [
        sample for sample in samples if sample.name == "kafka_server_sharepartitionmetrics_inflightmessagecount"
    ]
    assert [(sample.labels, sample.value) for sample in in_flight] == [
        ({"group": 'g,topic="x', "topic": "a-b", "partition": "1"}, 2)
    ]


def fetch_of_a_share_group(wire: Wire, group: str) -> None:
    """Acquire two records."""
    wire.produce("a-b", batch(b"x", b"y"), partition=1)
    topics = wire.call(MetadataRequest(topics=None)).topics
    topic_id = next(topic.topic_id for topic in topics if topic.name == "a-b")
    find = FindCoordinatorRequest(key_type=2, coordinator_keys=[f"{group}:{uuid_to_str(topic_id)}:1"])
    eventually("a share coordinator", lambda: wire.call(find).coordinators[0].error_code == 0)
    states = [
        InitializeStateData(topic_id=topic_id, partitions=[PartitionData(partition=1, state_epoch=1, start_offset=0)])
    ]
    state = InitializeShareGroupStateRequest(group_id=group, topics=states)
    eventually("a state", lambda: wire.call(state).results[0].partitions[0].error_code == 0)
    fetched = wire.call(share_fetches(topic_id, 1, group_id=group, max_wait_ms=20_000))
    assert acquired(fetched) == {1: [(0, 1, 1)]}
