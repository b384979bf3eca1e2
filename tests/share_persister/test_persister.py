"""The persister with a clock and a network in memory, and share coordinators that the test scripts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from pykbroker.coordinator.group.share.share_states import ShareStart, ShareStateKeeper, ShareSummary
from pykbroker.net.promise import Promise
from pykbroker.share_persister import persister_machine
from pykbroker.share_persister.group_share_states import GroupShareStates
from pykbroker.share_persister.persister import SharePersister
from pykbroker.share_persister.persister_machine import MOST_LOOKUP_KEYS
from pykbroker.share_persister.state_operations import ShareStateAnswer
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_wire.apis import ApiKey
from pykbroker_wire.errors import ErrorCode
from pykbroker_worlds.simulated.world import SimWorld
from testkit.share_metadata import ShareMetadata
from tests.share_persister.coordinators import (
    FIND,
    READ,
    SUMMARIZE,
    WRITE,
    PersisterAndItsWay,
    ScriptedCoordinator,
    batch,
    key,
)

PORTS = {1: 9_001, 2: 9_002}
DONE = ShareStateAnswer(ErrorCode.NONE)


class Bench:
    """Two share coordinators on machines of their own, and a persister on a third."""

    def __init__(self) -> None:
        self.world = SimWorld(1)
        self.coordinators = {number: ScriptedCoordinator(number) for number in PORTS}
        for number, port in PORTS.items():
            listening = self.world.network.listen(
                self.world.runtime(f"broker {number}", MemoryDisk()), self.coordinators[number], port
            )
            listening.serving = True
        self.metadata = ShareMetadata({number: ("localhost", port) for number, port in PORTS.items()})
        self.runtime = self.world.runtime("persister", MemoryDisk())
        self.way = PersisterAndItsWay(self.runtime, self.metadata)

    @property
    def persister(self) -> SharePersister:
        return self.way.persister

    @property
    def now(self) -> float:
        return self.world.loop.time()

    def sleep(self, seconds: float) -> None:
        self.world.loop.run_until_complete(asyncio.sleep(seconds))

    def answers(self, promises: list[Promise], patience: float = 100) -> list[ShareStateAnswer]:
        async def wait() -> None:
            # Without a callback, because a promise has one and the tests set it.
            while not all(promise.done() for promise in promises):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

        self.world.loop.run_until_complete(asyncio.wait_for(wait(), patience))
        return [promise.result() for promise in promises]

    def answer(self, promise: Promise, patience: float = 100) -> ShareStateAnswer:
        return self.answers([promise], patience)[0]

    def write(self, partition: int = 0, offset: int = 0, group: str = "g", timeout_ms: int | None = None) -> Promise:
        return self.persister.write(key(partition, group), 3, 4, offset, 1, [batch(0, 9)], timeout_ms=timeout_ms)

    def close(self) -> None:
        self.way.close()
        self.sleep(0.1)
        self.world.loop.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()


@pytest.fixture
def one(bench: Bench) -> ScriptedCoordinator:
    return bench.coordinators[1]


@pytest.fixture
def two(bench: Bench) -> ScriptedCoordinator:
    return bench.coordinators[2]


# -- the calls --------------------------------------------------------------------------------------------------------


def test_each_call_is_answered_by_the_coordinator(bench: Bench, one: ScriptedCoordinator) -> None:
    bench.metadata.lead(1)
    persister = bench.persister
    assert bench.answer(persister.initialize(key(), 2, 5)) == DONE
    assert bench.answer(persister.read(key(), 4)) == ShareStateAnswer(ErrorCode.NONE, None, 2, -1, 5, -1, [])
    assert bench.answer(persister.write(key(), 3, 4, 7, 2, [batch(7, 9), batch(10, 10, 0, 3)])) == DONE
    read = bench.answer(persister.read(key(), 4))
    assert (read.state_epoch, read.start_offset) == (3, 7)
    found = [(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in read.batches]
    assert found == [(7, 9, 2, 1), (10, 10, 0, 3)]
    assert bench.answer(persister.summarize(key())) == ShareStateAnswer(ErrorCode.NONE, None, 3, 4, 7, 2)
    assert bench.answer(persister.delete(key())) == DONE
    assert one.states == {}
    assert not one.asked(FIND), "the metadata names the coordinator"


def test_the_group_coordinator_gets_one_answer_for_many(bench: Bench, one: ScriptedCoordinator) -> None:
    bench.metadata.lead(1)
    keeper: ShareStateKeeper = GroupShareStates(bench.world.loop, bench.persister)
    topic = key().topic_id
    one.refuse = lambda name: ErrorCode.FENCED_STATE_EPOCH if name.partition == 1 else ErrorCode.NONE
    starts = keeper.initialize("g", [ShareStart(topic, 0, 2), ShareStart(topic, 1, 2), ShareStart(topic, 2, 3, 8)])
    assert isinstance(starts, asyncio.Future)
    run = bench.world.loop.run_until_complete
    assert run(starts) == [ErrorCode.NONE, ErrorCode.FENCED_STATE_EPOCH, ErrorCode.NONE]
    assert (one.states[key(2)].state_epoch, one.states[key(2)].start_offset) == (3, 8)
    summaries = keeper.read_summaries("g", [(topic, 2), (topic, 1)])
    assert isinstance(summaries, asyncio.Future)
    assert run(summaries) == [ShareSummary(start_offset=8), ShareSummary(ErrorCode.FENCED_STATE_EPOCH)]
    gone = keeper.delete("g", [(topic, 0), (topic, 2)])
    assert isinstance(gone, asyncio.Future)
    assert run(gone) == [ErrorCode.NONE] * 2
    assert keeper.delete("g", []) == []
    one.held.add(int(ApiKey.DELETE_SHARE_GROUP_STATE))
    given_up = keeper.delete("g", [(topic, 0)])
    assert isinstance(given_up, asyncio.Future)
    given_up.cancel()
    bench.sleep(0.1)
    assert bench.answer(bench.write()) == DONE


# -- the coordinator --------------------------------------------------------------------------------------------------


def test_a_lookup_finds_the_coordinator_if_the_metadata_does_not(bench: Bench, one: ScriptedCoordinator) -> None:
    for coordinator in bench.coordinators.values():
        coordinator.node_id = 1
    promises = [bench.write(partition) for partition in range(MOST_LOOKUP_KEYS + 10)]
    assert bench.answers(promises) == [DONE] * len(promises)
    asked = [request for each in bench.coordinators.values() for request in each.asked(FIND)]
    assert {request.key_type for request in asked} == {2}
    assert sorted(len(request.coordinator_keys) for request in asked) == [10, MOST_LOOKUP_KEYS]
    assert "g:dHR0dHR0dHR0dHR0dHR0dA:0" in [text for request in asked for text in request.coordinator_keys]
    assert len(one.states) == len(promises)


def test_a_topic_that_is_made_ends_the_rest(bench: Bench, one: ScriptedCoordinator, two: ScriptedCoordinator) -> None:
    one.find_error = two.find_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    promise = bench.write()
    bench.sleep(0.62)
    assert not promise.done()
    began = bench.now
    bench.metadata.lead(2)
    assert bench.answer(promise) == DONE
    assert bench.now - began < 0.1
    assert key() in two.states


def test_a_new_leader_gets_the_write_at_once(bench: Bench, one: ScriptedCoordinator, two: ScriptedCoordinator) -> None:
    bench.metadata.lead(1)
    one.refuse = lambda _: ErrorCode.NOT_COORDINATOR
    promise = bench.write()
    bench.sleep(3)
    began = bench.now
    bench.metadata.lead(2)
    assert bench.answer(promise) == DONE
    assert bench.now - began < 0.1


def test_a_coordinator_that_loads_is_asked_again_soon(bench: Bench, one: ScriptedCoordinator) -> None:
    """Apache Kafka waits for 2 s."""
    bench.metadata.lead(1)
    errors = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR]
    one.refuse = lambda _: errors.pop() if errors else ErrorCode.NONE
    began = bench.now
    assert bench.answer(bench.write()) == DONE
    assert 0.1 < bench.now - began < 0.5


# -- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_half_a_minute_is_tried(
    bench: Bench,
    one: ScriptedCoordinator,
    refusal: ErrorCode,
    expected: ErrorCode,
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench.metadata.lead(1)
    one.refuse = lambda _: refusal
    began = bench.now
    answers = bench.answers([bench.write(partition) for partition in range(10)])
    assert {answer.error for answer in answers} == {expected}
    assert 24 < bench.now - began < 38
    # All ten share every request, and one log line.
    assert [len(request.topics[0].partitions) for request in one.asked(WRITE)] == [10] * 9
    assert len(caplog.records) == 1
    assert refusal.name in caplog.text


@pytest.mark.parametrize(
    "verdict",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ],
)
def test_a_verdict_passes_to_the_caller_at_once(bench: Bench, one: ScriptedCoordinator, verdict: ErrorCode) -> None:
    bench.metadata.lead(1)
    one.refuse = lambda _: verdict
    assert bench.answer(bench.write(), 0.5).error is verdict
    assert len(one.asked(WRITE)) == 1


def test_a_node_of_an_earlier_release_is_asked_again(bench: Bench, one: ScriptedCoordinator) -> None:
    """Issue 29, part 5: it counts as COORDINATOR_NOT_AVAILABLE, and the write succeeds when it is upgraded."""
    bench.metadata.lead(1)
    served = one.ranges.pop(WRITE)
    lost = bench.write()
    assert bench.answer(lost).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    promise = bench.write()
    bench.sleep(1)
    one.ranges[WRITE] = served
    for connection in one.connections:
        connection.transport.close()
    assert bench.answer(promise) == DONE


def test_version_0_of_write_has_no_count(bench: Bench, one: ScriptedCoordinator) -> None:
    bench.metadata.lead(1)
    one.ranges[WRITE] = (0, 0)
    assert bench.answer(bench.write()) == DONE
    assert one.states[key()].delivery_complete_count == -1


def test_lookups_that_a_node_cannot_serve_go_to_another(
    bench: Bench, one: ScriptedCoordinator, two: ScriptedCoordinator
) -> None:
    one.ranges[FIND] = (0, 3)
    two.node_id = 2
    promises = [bench.write(partition, group=f"g{partition}") for partition in range(20)]
    assert bench.answers(promises) == [DONE] * 20


def test_a_node_that_dies_loses_no_operation(bench: Bench, one: ScriptedCoordinator, two: ScriptedCoordinator) -> None:
    bench.metadata.lead(1)
    one.held.add(WRITE)
    promises = [bench.write(partition) for partition in range(5)]
    bench.sleep(0.5)
    promises += [bench.write(partition) for partition in range(5, 10)]
    bench.sleep(0.5)
    assert not any(promise.done() for promise in promises)
    for connection in one.connections:
        connection.transport.abort()
    bench.world.network.close(PORTS[1])
    bench.sleep(0.1)
    bench.metadata.lead(2)
    assert bench.answers(promises, 2) == [DONE] * 10
    assert len(two.states) == 10


def test_a_silent_node_is_given_up_after_its_timeout(
    bench: Bench, one: ScriptedCoordinator, two: ScriptedCoordinator
) -> None:
    bench.metadata.lead(1)
    assert bench.answer(bench.write()) == DONE
    one.is_silent = True
    promise = bench.write(offset=1)
    bench.sleep(29)
    bench.metadata.lead(2)
    bench.sleep(0.5)
    assert not promise.done(), "the old coordinator may still carry it out, and no later write may overtake it"
    assert bench.answer(promise, 4) == DONE
    assert two.states[key()].start_offset == 1


# -- order and batches ------------------------------------------------------------------------------------------------


def test_writes_of_one_turn_share_a_request(bench: Bench, one: ScriptedCoordinator) -> None:
    bench.metadata.lead(1)
    promises = [bench.write(partition, group=group) for group in ("g", "h") for partition in range(500)]
    assert bench.answers(promises) == [DONE] * 1_000
    assert [(request.group_id, len(request.topics[0].partitions)) for request in one.asked(WRITE)] == [
        ("g", 500),
        ("h", 500),
    ]


def test_what_comes_during_a_request_shares_the_next(bench: Bench, one: ScriptedCoordinator) -> None:
    bench.metadata.lead(1)
    one.held.add(WRITE)
    promises = []
    for partition in range(20):
        promises.append(bench.write(partition))
        bench.sleep(0.01)
    assert len(one.asked(WRITE)) == 1
    one.release()
    assert bench.answers(promises) == [DONE] * 20
    assert [len(request.topics[0].partitions) for request in one.asked(WRITE)] == [1, 19]


def test_a_large_batch_is_divided(bench: Bench, one: ScriptedCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persister_machine, "MOST_REQUEST_BYTES", 1_000)
    bench.metadata.lead(1)
    promises = [bench.write(partition) for partition in range(25)]
    assert bench.answers(promises) == [DONE] * 25
    sizes = [len(request.topics[0].partitions) for request in one.asked(WRITE)]
    assert sizes == [11, 11, 3]
    assert all(len(request.encode(1)[0]) <= 1_000 for request in one.asked(WRITE))


def test_a_write_that_is_tried_again_is_not_overtaken(bench: Bench, one: ScriptedCoordinator) -> None:
    """In Apache Kafka the second write goes while the first one rests."""
    bench.metadata.lead(1)
    errors = [ErrorCode.NOT_COORDINATOR] * 6
    one.refuse = lambda _: errors.pop() if errors else ErrorCode.NONE
    first = bench.write(offset=1)
    bench.sleep(1)
    second = bench.write(offset=2)
    order: list[int] = []
    first.add_done_callback(lambda _: order.append(1))
    second.add_done_callback(lambda _: order.append(2))
    assert bench.answers([first, second]) == [DONE, DONE]
    assert order == [1, 2]
    assert [each.topics[0].partitions[0].start_offset for each in one.asked(WRITE)] == [1] * 7 + [2]


def test_a_write_does_not_wait_for_summaries_of_its_key(bench: Bench, one: ScriptedCoordinator) -> None:
    """Any client that may describe a group can ask for any number of summaries."""
    bench.metadata.lead(1)
    assert bench.answer(bench.write()) == DONE
    one.held.add(SUMMARIZE)
    promises = [bench.persister.summarize(key()), bench.persister.summarize(key())]
    bench.sleep(0.1)
    promises.append(bench.write(offset=1))
    bench.sleep(0.1)
    assert (len(one.asked(SUMMARIZE)), len(one.asked(WRITE))) == (1, 2)
    one.release()
    assert {answer.error for answer in bench.answers(promises, 1)} == {ErrorCode.NONE}
    assert len(one.asked(SUMMARIZE)) == 2, "summaries of a key still go one after another"


def test_a_write_is_answered_while_summaries_of_its_key_are_tried_again(bench: Bench, one: ScriptedCoordinator) -> None:
    bench.metadata.lead(1)
    one.ranges.pop(SUMMARIZE)
    summaries = [bench.persister.summarize(key()), bench.persister.summarize(key())]
    bench.sleep(0.1)
    assert bench.answer(bench.write(), 0.5) == DONE
    assert not any(promise.done() for promise in summaries)


# -- callers that give up, and limits ---------------------------------------------------------------------------------


def test_a_deadline_is_kept_and_the_late_answer_dropped(bench: Bench, one: ScriptedCoordinator) -> None:
    bench.metadata.lead(1)
    one.held.add(WRITE)
    began = bench.now
    assert bench.answer(bench.write(offset=1, timeout_ms=500)).error is ErrorCode.REQUEST_TIMED_OUT
    assert 0.5 <= bench.now - began < 0.7
    second = bench.write(offset=2)
    bench.sleep(0.5)
    assert len(one.asked(WRITE)) == 1, "the first request is still under way"
    one.release()
    assert bench.answer(second) == DONE
    assert one.states[key()].start_offset == 2


def test_a_caller_that_cancels_is_not_called(bench: Bench, one: ScriptedCoordinator) -> None:
    bench.metadata.lead(1)
    one.held.add(WRITE)
    under_way = bench.write()
    bench.sleep(0.1)
    waiting, other = bench.write(), bench.write(1)
    called: list[Promise] = []
    under_way.add_done_callback(called.append)
    waiting.add_done_callback(called.append)
    under_way.cancel()
    waiting.cancel()
    one.release()
    assert bench.answer(other) == DONE
    bench.sleep(1)
    assert called == []
    assert len(one.asked(WRITE)) == 2, "one that was given up in time is not sent"


def test_too_many_operations_are_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persister_machine, "MOST_OPERATIONS", 3)
    bench.metadata.lead(-1)
    for coordinator in bench.coordinators.values():
        coordinator.find_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    promises = [bench.write(partition) for partition in range(5)]
    bench.sleep(0.01)
    assert [promise.done() for promise in promises] == [False] * 3 + [True] * 2
    assert {promise.result().error for promise in promises[3:]} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    monkeypatch.setattr(persister_machine, "MOST_BYTES", 250)
    promises[0].cancel()
    refused = bench.write(9)
    bench.sleep(0.01)
    assert refused.done()


@pytest.mark.parametrize(("name", "value"), [("MOST_OPERATIONS", 3), ("MOST_BYTES", 250)])
def test_summaries_take_no_place_of_leaders(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str, value: int
) -> None:
    monkeypatch.setattr(persister_machine, name, value)
    monkeypatch.setattr(persister_machine, "MOST_SUMMARIES", 5)
    bench.metadata.lead(-1)
    for coordinator in bench.coordinators.values():
        coordinator.find_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    summaries = [bench.persister.summarize(key(partition)) for partition in range(7)]
    others = [bench.write(9), bench.persister.read(key(9), 1), bench.persister.initialize(key(8), 1, 0)]
    bench.sleep(0.01)
    assert [promise.done() for promise in summaries] == [False] * 5 + [True] * 2
    assert {promise.result().error for promise in summaries[5:]} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert not any(promise.done() for promise in others)
    summaries[0].cancel()
    waits = bench.persister.summarize(key(7))
    bench.sleep(0.01)
    assert not waits.done()


def test_a_group_without_a_name_is_refused(bench: Bench) -> None:
    assert bench.answer(bench.write(group=" "), 0.1).error is ErrorCode.INVALID_REQUEST


def test_without_any_broker_it_is_tried_and_given_up(bench: Bench) -> None:
    bench.metadata.fence(1, 2)
    assert bench.answer(bench.write()).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    promise = bench.write()
    bench.sleep(1)
    bench.metadata.fence()
    bench.coordinators[2].node_id = 1
    assert bench.answer(promise, 3) == DONE


def test_a_broker_that_stops_answers_what_waits(bench: Bench, one: ScriptedCoordinator) -> None:
    bench.metadata.lead(1)
    one.held.add(WRITE)
    promises = [bench.write(0), bench.write(0), bench.write(1)]
    bench.sleep(0.1)
    promises.append(bench.persister.read(key(3), 1))
    bench.persister.close()
    promises.append(bench.write(4))
    answers = bench.answers(promises, 0.1)
    assert {answer.error for answer in answers} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert not one.asked(READ)


def test_an_answer_that_its_caller_cannot_use_holds_no_other(
    bench: Bench, one: ScriptedCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    bench.metadata.lead(1)
    first, second = bench.write(0), bench.write(1)
    first.add_done_callback(lambda _: 1 // 0)
    assert bench.answer(second) == DONE
    assert "ZeroDivisionError" in caplog.text


def test_a_callback_may_call_again(bench: Bench, one: ScriptedCoordinator) -> None:
    bench.metadata.lead(1)
    later: list[Promise] = []
    first = bench.write(0)
    first.add_done_callback(lambda _: later.append(bench.write(0, offset=5)))
    bench.answer(first)
    assert bench.answer(later[0]) == DONE
    assert one.states[key()].start_offset == 5


def test_two_kinds_go_at_the_same_time(bench: Bench, one: ScriptedCoordinator) -> None:
    bench.metadata.lead(1)
    one.held.add(READ)
    one.states[key(1)] = one.states[key(2)] = batch(0, 0)
    one.refuse = lambda _: ErrorCode.INVALID_REQUEST
    promises = [bench.persister.read(key(1), 1), bench.write(2), bench.persister.delete(key(3))]
    bench.sleep(0.2)
    assert {api_key for api_key, _ in one.requests} == {READ, WRITE, ApiKey.DELETE_SHARE_GROUP_STATE}
    one.release()
    assert {answer.error for answer in bench.answers(promises)} == {ErrorCode.INVALID_REQUEST}
