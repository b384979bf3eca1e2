"""The valid fault rules, and the requests that each matches."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.testing.faults.fault_rule import FaultError, FaultRule, SeenRequest
from pykbroker.testing.faults.named_parts import parts_in
from pykbroker.testing.faults.rule_set import MOST_RULES, Faults
from pykbroker_wire.apis import ApiKey
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def produce(client_id: str | None = "shop", node: int = 1, between_brokers: bool = False) -> SeenRequest:
    request = ProduceRequest(
        acks=-1,
        topic_data=[
            TopicProduceData(
                name="orders", partition_data=[PartitionProduceData(index=0), PartitionProduceData(index=1)]
            ),
            TopicProduceData(name="bills", partition_data=[PartitionProduceData(index=0)]),
        ],
    )
    parts = tuple(parts_in(ApiKey.PRODUCE, 9, request, lambda _: None))
    return SeenRequest(ApiKey.PRODUCE, 9, client_id, node, parts, request, between_brokers)


def about(rule: FaultRule, seen: SeenRequest) -> list[tuple[str | None, int | None]] | None:
    chosen = rule.chosen(seen)
    return None if chosen is None else [(part.topic, part.partition) for part in chosen]


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({"api": "Produce"}, [("orders", 0), ("orders", 1), ("bills", 0)]),
        ({"api": "produce", "topic": "orders"}, [("orders", 0), ("orders", 1)]),
        ({"api": 0, "partition": 0}, [("orders", 0), ("bills", 0)]),
        ({"topic": "orders", "partition": 1}, [("orders", 1)]),
        ({"client_id": "shop", "node": 1, "topic": "bills"}, [("bills", 0)]),
        ({"api": "Fetch"}, None),
        ({"topic": "other"}, None),
        ({"topic": "bills", "partition": 1}, None),
        ({"client_id": "other"}, None),
        ({"api": "Produce", "node": 2}, None),
        ({"api": "Produce", "between_brokers": True}, None),
    ],
)
def test_what_matches(given: dict[str, Any], chosen: list[tuple[str, int]] | None) -> None:
    assert about(FaultRule.of(given), produce()) == chosen


def test_requests_of_brokers_match_only_when_asked_for() -> None:
    from_broker = produce(client_id="broker-2-fetcher-0", between_brokers=True)
    assert about(FaultRule.of({"api": "Produce"}), from_broker) is None
    assert about(FaultRule.of({"api": "Produce", "between_brokers": True}), from_broker) is not None


@pytest.mark.parametrize(
    ("given", "acting"),
    [
        ({}, [1, 2, 3, 4, 5]),
        ({"nth": 3}, [3]),
        ({"times": 2}, [1, 2]),
        ({"nth": 2, "times": 3}, [2, 3, 4]),
    ],
)
def test_on_which_match_it_acts(given: dict[str, Any], acting: list[int]) -> None:
    faults = Faults()
    fault = faults.add("Produce", error="REQUEST_TIMED_OUT", **given)
    verdicts = [faults.judge(produce()) for _ in range(5)]
    assert [number for number, verdict in enumerate(verdicts, 1) if verdict is not None] == acting
    assert (fault.matched, fault.acted) == (5, len(acting))


def test_the_first_whose_turn_it_is_acts_and_all_count() -> None:
    faults = Faults()
    spy = faults.add("Produce")
    first = faults.add("Produce", error="REQUEST_TIMED_OUT", times=1)
    second = faults.add("Produce", drop=True)
    numbers = [verdict.number for _ in range(3) if (verdict := faults.judge(produce())) is not None]
    assert numbers == [first.number, second.number, second.number]
    assert [(fault.matched, fault.acted) for fault in (spy, first, second)] == [(3, 0), (3, 1), (3, 2)]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "name at least an api"),
        ({"topic": None}, "name at least an api"),
        ({"apis": "Produce"}, "has no 'apis'"),
        ({"api": "Produces"}, "there is no API 'Produces'"),
        ({"api": 4711}, "there is no API 4711"),
        ({"api": True}, "there is no API True"),
        ({"api": "Produce", "topic": 5}, "topic is a text"),
        ({"api": "Produce", "partition": -1}, "partition is a whole number from 0"),
        ({"api": "Produce", "nth": 0}, "nth is a whole number from 1"),
        ({"api": "Produce", "times": 1.5}, "times is a whole number from 1"),
        ({"api": "Produce", "error": "NOT_LEADER"}, "there is no error 'NOT_LEADER'"),
        ({"api": "Produce", "error": 9999}, "there is no error 9999"),
        ({"api": "Produce", "error": "NONE"}, "NONE is no error"),
        ({"api": "Produce", "drop": "yes"}, "drop is true or false"),
        ({"api": "Produce", "delay_ms": 10**9}, "delay_ms is a whole number"),
        ({"api": "Produce", "drop": True, "disconnect": True}, "drop and disconnect are two rules"),
        ({"api": "Produce", "drop": True, "delay_ms": 5}, "not delayed as well"),
        ({"api": "Produce", "carried_out": True}, "carried_out goes with"),
        ({"api": "Heartbeat", "topic": "orders"}, "Heartbeat names no topics"),
        ({"api": "CreateTopics", "partition": 0}, "CreateTopics names no partitions"),
        ({"change": {"throttle_time_ms": 1}}, "change needs an api"),
        ({"api": "Produce", "change": {"throttle": 1}}, "throttle is no field"),
        ({"api": "Produce", "change": {"responses.partitions.index": 1}}, "is no field"),
        ({"api": "Produce", "change": {"throttle_time_ms": "1"}}, "cannot be '1'"),
        ({"api": "Produce", "change": {"responses": 1}}, "cannot be 1"),
        ({"api": "Produce", "change": [1]}, "change has paths"),
        ({"api": "Produce", "change": {"throttle_time_ms": [1]}}, "change has paths"),
    ],
)
def test_what_a_rule_cannot_say(given: dict[str, Any], words: str) -> None:
    with pytest.raises(FaultError, match=r".") as raised:
        FaultRule.of(given)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "given",
    [
        {"api": "Produce", "topic": "orders", "partition": 2, "error": "NOT_LEADER_OR_FOLLOWER", "times": 2},
        {"api": "Fetch", "client_id": "shop", "node": 2, "delay_ms": 10},
        {"api": "Produce", "disconnect": True, "carried_out": True, "nth": 2, "times": 1},
        {"api": "Fetch", "between_brokers": True, "drop": True},
        {"api": "InitProducerId", "change": {"producer_id": 7, "throttle_time_ms": 1}},
    ],
)
def test_json_and_back(given: dict[str, Any]) -> None:
    assert FaultRule.of(given).to_json() == given


def test_there_are_no_more_rules_than_the_bound() -> None:
    faults = Faults()
    for _ in range(MOST_RULES):
        faults.add("Produce")
    with pytest.raises(FaultError, match=f"{MOST_RULES} fault rules already"):
        faults.add("Produce")
    next(iter(faults)).remove()
    faults.add("Produce")


def test_waiting_ends_with_the_rule() -> None:
    faults = Faults()
    fault = faults.add("Produce")
    with pytest.raises(TimeoutError, match="matched 0 requests"):
        fault.wait_for(timeout_seconds=0)
    with fault:
        faults.judge(produce())
        fault.wait_for()
    with pytest.raises(TimeoutError, match="was removed when 1 requests had matched"):
        fault.wait_for(2)


def acted_on(probability: float, seed: int, **more: Any) -> list[int]:
    faults = Faults()
    faults.add("Produce", error="REQUEST_TIMED_OUT", probability=probability, seed=seed, **more)
    return [number for number in range(1, 1001) if faults.judge(produce()) is not None]


def test_a_probability_is_repeatable_by_its_seed() -> None:
    found = acted_on(0.2, 7)
    assert found == acted_on(0.2, 7)
    assert found != acted_on(0.2, 8)
    assert 150 < len(found) < 250
    assert acted_on(1, 7) == list(range(1, 1001))
    assert acted_on(0.2, 7, nth=101, times=100) == [number for number in found if 101 <= number <= 200]


@pytest.mark.parametrize("probability", [0, -0.5, 1.5, True, "0.5", float("nan")])
def test_a_probability_that_is_none(probability: Any) -> None:
    with pytest.raises(FaultError, match="probability is a number above 0 and up to 1"):
        FaultRule.of({"api": "Produce", "drop": True, "probability": probability})


def test_a_callback_decides_for_each_request() -> None:
    faults = Faults()
    given: list[SeenRequest] = []

    def decide(seen: SeenRequest) -> dict[str, Any] | None:
        given.append(seen)
        return {"error": "REQUEST_TIMED_OUT", "carried_out": True} if len(given) == 2 else None

    first = faults.add("Produce", topic="orders", callback=decide)
    second = faults.add("Produce", drop=True)
    assert [faults.judge(produce()).rule.drop for _ in range(3)] == [True, False, True]  # type: ignore[union-attr]
    assert [seen.api for seen in given] == ["Produce"] * 3
    assert (first.matched, first.acted, second.matched, second.acted) == (3, 1, 3, 2)
    assert first.to_json()["rule"] == {"api": "Produce", "topic": "orders", "callback": "decide"}


@pytest.mark.parametrize("returned", [{}, {"nth": 2}, "error", {"error": "NO"}, {"drop": True, "disconnect": True}, 1])
def test_a_callback_that_returns_no_action_harms_no_request(returned: Any) -> None:
    faults = Faults()
    fault = faults.add("Produce", callback=lambda seen: returned)
    assert faults.judge(produce()) is None
    assert isinstance(fault.failure, FaultError)


def test_a_callback_may_change_the_rules() -> None:
    faults = Faults()

    def once(seen: SeenRequest) -> dict[str, Any]:
        faults.clear()
        return {"disconnect": True}

    faults.add("Produce", callback=once)
    assert faults.judge(produce()) is not None
    assert faults.judge(produce()) is None


@pytest.mark.parametrize("more", [{"drop": True}, {"delay_ms": 5}])
def test_a_callback_stands_alone(more: dict[str, Any]) -> None:
    with pytest.raises(FaultError):
        FaultRule.of({"api": "Produce", "callback": lambda seen: None, **more})


def test_a_callback_does_not_go_over_http() -> None:
    with pytest.raises(FaultError, match="does not go over HTTP"):
        FaultRule.of({"api": "Produce", "callback": "decide"})
