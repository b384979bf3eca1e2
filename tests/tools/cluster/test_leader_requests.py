"""Requests to the leaders of partitions: a leader that has changed is looked up again, and each failure keeps its
partition."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import cast

import pytest

from pykbroker.__main__ import main
from pykbroker.testing import Broker
from pykbroker.tools.cluster import leader_requests, log_offsets
from pykbroker.tools.cluster.asked_cluster import AskedCluster, ClusterSettings, PartitionName
from pykbroker.tools.cluster.failure import AskFailed, failed
from pykbroker.tools.cluster.leader_requests import Outcomes, of_leaders
from pykbroker.tools.kafka.__main__ import main as kafka_tool
from pykbroker_wire.errors import ErrorCode

PLACES = [("t", 0), ("t", 1)]


class Patience:
    """A cluster of which only the patience is asked: it has so many attempts."""

    def __init__(self, attempts: int) -> None:
        self.left = attempts

    def settled(self, attempt: object) -> None:
        assert callable(attempt)
        while True:
            self.left -= 1
            try:
                return attempt()  # type: ignore[no-any-return]
            except AskFailed as error:
                if not error.retriable or not self.left:
                    raise


def asked(
    monkeypatch: pytest.MonkeyPatch,
    answers: list[dict[PartitionName, int | ErrorCode]],
    *,
    raises: bool = False,
    led: Mapping[PartitionName, int] | None = None,
) -> tuple[Outcomes[int], list[list[PartitionName]]]:
    """Return the outcomes, and the partitions of each request. Each of `answers` is that of one request."""
    monkeypatch.setattr(leader_requests, "leaders", lambda *_: led or dict.fromkeys(PLACES, 1))
    requests: list[list[PartitionName]] = []

    def ask(node: int, places: list[PartitionName]) -> Outcomes[int]:
        requests.append(places)
        answer = answers[len(requests) - 1]
        return {place: failed(found) if isinstance(found, ErrorCode) else found for place, found in answer.items()}

    cluster = cast(AskedCluster, Patience(len(answers)))
    return of_leaders(cluster, PLACES, ask, raises=raises), requests


def code_of(outcome: int | AskFailed) -> ErrorCode | None:
    assert isinstance(outcome, AskFailed)
    return outcome.code


def test_only_a_partition_whose_leader_has_changed_is_asked_about_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first: dict[PartitionName, int | ErrorCode] = {PLACES[0]: 5, PLACES[1]: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    outcomes, requests = asked(monkeypatch, [first, {PLACES[1]: 6}])
    assert outcomes == {PLACES[0]: 5, PLACES[1]: 6}
    assert requests == [PLACES, [PLACES[1]]]


def test_what_has_an_outcome_keeps_it_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    first: dict[PartitionName, int | ErrorCode] = {PLACES[0]: 5, PLACES[1]: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    outcomes, _ = asked(monkeypatch, [first])
    assert outcomes[PLACES[0]] == 5
    assert code_of(outcomes[PLACES[1]]) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(AskFailed):
        asked(monkeypatch, [first], raises=True)


def test_a_partition_without_a_leader_has_that_as_its_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes, requests = asked(monkeypatch, [{PLACES[0]: 5}], led={PLACES[0]: 1, PLACES[1]: -1})
    assert outcomes[PLACES[0]] == 5
    assert code_of(outcomes[PLACES[1]]) == ErrorCode.LEADER_NOT_AVAILABLE
    assert requests == [[PLACES[0]]]


# -- with a broker ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("t", partitions=2)
        yield broker


@pytest.fixture(autouse=True)
def _no_faults(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "broker" in request.fixturenames:
        request.getfixturevalue("broker").faults.clear()


@pytest.mark.slow
def test_records_are_deleted_at_the_next_leader(broker: Broker) -> None:
    broker.faults.add("DeleteRecords", topic="t", partition=1, error="NOT_LEADER_OR_FOLLOWER", times=2)
    with AskedCluster(ClusterSettings((broker.bootstrap_servers,))) as cluster:
        assert log_offsets.delete_before(cluster, dict.fromkeys(PLACES, -1)) == {PLACES[0]: 0, PLACES[1]: 0}


@pytest.mark.slow
def test_a_search_names_the_partitions_that_it_could_not_read(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    """A transaction may hang there, so a list without it must not look whole."""
    at = ["-b", broker.bootstrap_servers]
    assert main(["transactions", "find-hanging", "--topic", "t", *at]) == 0
    broker.faults.add("DescribeProducers", topic="t", partition=1, error="TOPIC_AUTHORIZATION_FAILED")
    capsys.readouterr()
    assert main(["transactions", "find-hanging", "--topic", "t", "-o", "json", *at]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out) == []
    assert said.err.startswith("pykbroker: t-1 was not searched: ")
    assert said.err.endswith("(TOPIC_AUTHORIZATION_FAILED)\n")
    words = ["--bootstrap-server", broker.bootstrap_servers, "find-hanging", "--topic", "t"]
    assert kafka_tool(["transactions", *words]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("Topic")
    assert said.err.startswith("Failed to describe producers for partition t-1 on leader: ")
