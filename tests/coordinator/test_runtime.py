"""The machine around pure state: append, replay, commit, timers, leadership, loading. Its shard is a counter."""

from __future__ import annotations

from typing import Any

from pykbroker.coordinator.machine import CoordinatorOperation
from pykbroker.coordinator.result import Result
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.records.batch import build_batch
from pykbroker_wire.records.compression import Codec
from pykbroker_wire.records.record import iter_records
from tests.coordinator.counter import (
    TIMEOUT_MS,
    Counter,
    Machine,
    add,
    done,
    effect,
    end,
    in_transaction,
    read,
)


def test_an_operation_that_commits_at_once_is_answered_in_the_same_call(machine: Machine) -> None:
    partition = machine.lead()
    assert machine.submit(add("a", "b")) == "0 before"
    assert machine.submit(read) == ["a", "b"]
    assert machine.shards[0].offsets == [0, 1]
    assert [header.record_count for header in partition.log.headers()] == [2]
    assert machine.loop.sleeping() == 0


def test_nobody_who_does_not_lead_answers(machine: Machine) -> None:
    assert machine.submit(read) is ErrorCode.NOT_COORDINATOR
    machine.lead()
    assert machine.runtime.led() == [0]
    assert machine.runtime.submit(1, read, lambda code: code) is ErrorCode.NOT_COORDINATOR


def test_answers_wait_for_the_commit_and_reads_with_them(machine: Machine) -> None:
    partition = machine.lead()
    partition.hold = True
    first = machine.submit(add("a"))
    second = machine.submit(add("b"))
    reading = machine.submit(read)
    assert not any(future.done() for future in (first, second, reading))
    # The next operation sees the records that are not committed yet.
    assert machine.shards[0].names == ["a", "b"]
    partition.commit(1)
    assert done(first) == "0 before"
    assert not second.done()
    partition.commit()
    assert done(second) == "1 before"
    assert done(reading) == ["a", "b"]


def test_a_refused_append_changes_nothing(machine: Machine) -> None:
    partition = machine.lead()
    for code, answer in (
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ):
        partition.refuse = code
        assert machine.submit(add("a")) is answer
    partition.refuse = None
    assert machine.submit(read) == []


def test_soft_state_hears_of_a_refused_append(machine: Machine) -> None:
    partition = machine.lead()

    def operation(shard: Counter, token: int, now_ms: int) -> Result:
        result = add("a")(shard, token, now_ms)

        def failed(code: ErrorCode, now_ms: int) -> Result:
            shard.note = code.name
            follow_up = Result()
            follow_up.set_timer(("later",), 1_000)
            return follow_up

        result.append_failed = failed
        return result

    partition.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    assert machine.submit(operation) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert machine.shards[0].note == "COORDINATOR_NOT_AVAILABLE"
    machine.loop.advance(1)
    assert machine.shards[0].fired == [(("later",), None)]


def test_a_commit_that_takes_too_long_is_an_error_and_the_state_stays(machine: Machine) -> None:
    partition = machine.lead()
    partition.hold = True
    writing = machine.submit(add("a"))
    machine.loop.advance(1)
    reading = machine.submit(read)
    machine.loop.advance(4)
    assert done(writing) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not reading.done()
    machine.loop.advance(1)
    assert done(reading) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    partition.commit()
    assert machine.submit(read) == ["a"]


def test_effects_wait_for_the_commit_however_late_it_is(machine: Machine) -> None:
    partition = machine.lead()
    machine.submit(effect("at once", "a"))
    assert [name for _, _, name in machine.effects] == ["at once"]
    partition.hold = True
    overdue = machine.submit(effect("late", "b"))
    machine.submit(effect("without records"))
    machine.loop.advance(TIMEOUT_MS / 1000)
    assert done(overdue) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(machine.effects) == 1
    partition.commit()
    assert [name for _, _, name in machine.effects] == ["at once", "late", "without records"]
    assert {(index, epoch) for index, epoch, _ in machine.effects} == {(0, machine.runtime.leader_epoch(0))}


def test_effects_of_a_refused_append_and_of_a_lost_lead_are_forgotten(machine: Machine) -> None:
    partition = machine.lead()
    partition.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    machine.submit(effect("refused", "a"))
    partition.refuse = None
    partition.hold = True
    machine.submit(effect("lost", "b"))
    machine.replicas.lose()
    assert machine.effects == []
    assert machine.runtime.leader_epoch(0) is None


def test_effects_of_loading_come_when_operations_are_taken_again(machine: Machine) -> None:
    machine.effects_of_load.append("left over")
    took: list[Any] = []
    machine.runtime._on_effect = lambda index, epoch, effect: took.append(machine.submit(add(effect)))
    machine.lead()
    assert took == ["0 before"]


def test_an_effect_may_submit_the_next_operation_at_once(machine: Machine) -> None:
    machine.lead()
    machine.runtime._on_effect = lambda index, epoch, effect: machine.submit(add(effect))
    assert machine.submit(effect("second", "first")) == "0 before"
    assert machine.submit(read) == ["first", "second"]


def test_losing_the_lead_ends_every_request_and_timer(machine: Machine) -> None:
    partition = machine.lead()
    partition.hold = True
    writing = machine.submit(add("a"))
    parked = machine.submit(lambda shard, token, now_ms: Result())
    collected = machine.submit(add("b"), barrier=False)

    def with_timer(shard: Counter, token: int, now_ms: int) -> Result:
        result = read(shard, token, now_ms)
        result.set_timer(("t",), 10)
        return result

    reading = machine.submit(with_timer)
    machine.replicas.lose()
    assert {done(future) for future in (writing, parked, collected, reading)} == {ErrorCode.NOT_COORDINATOR}
    assert machine.submit(read) is ErrorCode.NOT_COORDINATOR
    machine.loop.advance(60)
    assert machine.shards[0].fired == []


def test_a_new_epoch_of_the_same_leader_disturbs_nothing(machine: Machine) -> None:
    """As in Apache Kafka's CoordinatorRuntime, an active coordinator only takes over the epoch."""
    partition = machine.lead()
    partition.hold = True
    parked = machine.submit(lambda shard, token, now_ms: Result())
    uncommitted = machine.submit(add("a"))
    machine.submit(effect("told", "b"))

    def set_timer(shard: Counter, token: int, now_ms: int) -> Result:
        result = Result()
        result.set_timer(("later",), 1_000)
        return result

    machine.submit(set_timer)
    before = machine.runtime.leader_epoch(0)
    assert before is not None
    machine.replicas.lead_on()
    assert not parked.done()
    assert not uncommitted.done()
    partition.commit()
    assert done(uncommitted) == "0 before"
    assert machine.effects == [(0, before + 1, "told")]
    machine.loop.advance(1)
    assert machine.shards[0].fired == [(("later",), None)]
    assert machine.submit(read) == ["a", "b"]
    assert len(machine.shards) == 1
    assert machine.runtime.leader_epoch(0) == before + 1
    assert [machine.runtime.has_led_since(0, before + since) for since in (-1, 0, 1, 2)] == [False, True, True, False]
    machine.replicas.lose()
    assert not machine.runtime.has_led_since(0, before)


def test_a_new_epoch_of_the_same_leader_does_not_begin_a_load_again(machine: Machine) -> None:
    log = machine.lead().log
    for number in range(300):
        log.append(build_batch([(f"k{number}".encode(), b"v", (), 0)]))
    machine.replicas.lose()
    machine.replicas.lead()
    machine.loop.turn()
    loaded = len(machine.shards[-1].names)
    assert 0 < loaded < 300, "the load is under way"
    machine.replicas.lead_on()
    assert len(machine.shards[-1].names) == loaded
    machine.loop.settle()
    assert len(machine.shards[-1].names) == 300
    assert len(machine.shards) == 2


def test_a_coordinator_that_could_not_be_loaded_is_loaded_in_the_next_epoch(machine: Machine) -> None:
    log = machine.lead().log
    log.append(build_batch([(b"\xff\xfe", b"v", (), 0)]))
    machine.replicas.lose()
    machine.lead()
    assert machine.submit(read) is ErrorCode.NOT_COORDINATOR
    log.batches[-1] = build_batch([(b"a", b"v", (), 0)])
    machine.replicas.lead_on()
    machine.loop.settle()
    assert machine.submit(read) == ["a"]


def test_collected_operations_become_one_batch_at_the_end_of_the_turn(machine: Machine) -> None:
    partition = machine.lead()
    answers = [machine.submit(add(name), barrier=False) for name in "abc"]
    assert partition.log.batches == []
    machine.loop.settle()
    assert [header.record_count for header in partition.log.headers()] == [3]
    assert [done(answer) for answer in answers] == ["0 before"] * 3
    assert machine.submit(read) == ["a", "b", "c"]


def test_a_transactional_result_is_one_batch_of_its_producer(machine: Machine) -> None:
    partition = machine.lead()
    guard = object()
    collected = machine.submit(add("before"), barrier=False)
    answer = machine.runtime.submit(
        0, in_transaction(7, 1, "a", "b"), lambda code: code, barrier=False, verification=guard
    )
    assert done(answer) == "0 before"
    assert done(collected) == "0 before"
    plain, transactional = partition.log.headers()
    assert (plain.producer_id, plain.is_transactional, plain.record_count) == (-1, False, 1)
    assert (transactional.producer_id, transactional.producer_epoch, transactional.base_sequence) == (7, 1, 0)
    assert (transactional.is_transactional, transactional.is_control, transactional.record_count) == (True, False, 2)
    assert partition.verifications == [None, guard]
    assert machine.shards[0].names == ["before", "a", "b"]
    assert machine.shards[0].producers == [-1, 7, 7]


def test_a_marker_is_heard_at_once_and_answered_at_commit(machine: Machine) -> None:
    partition = machine.lead()
    partition.hold = True
    writing = machine.submit(in_transaction(7, 1, "a"))
    collected = machine.submit(add("b"), barrier=False)
    marker = end(machine)
    assert machine.shards[0].names == ["a", "b"]
    assert machine.shards[0].ended == [(7, True)]
    assert [header.is_control for header in partition.log.headers()] == [False, False, True]
    assert partition.transaction_versions == [2]
    reading = machine.submit(read)
    assert not any(future.done() for future in (writing, collected, marker, reading))
    partition.commit(2)
    assert done(collected) == "1 before"
    assert not marker.done()
    partition.commit()
    assert done(marker) is ErrorCode.NONE
    assert done(reading) == ["a", "b"]
    machine.replicas.lose()
    machine.lead()
    assert machine.shards[1].producers == [7, -1]
    assert machine.shards[1].ended == [(7, True)]


def test_a_marker_that_cannot_be_written_changes_nothing(machine: Machine) -> None:
    assert end(machine) is ErrorCode.NOT_COORDINATOR
    partition = machine.lead()
    for code, answer in (
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    ):
        partition.refuse = code
        assert end(machine, commit=False) is answer
    assert machine.shards[0].ended == []
    partition.refuse = None
    partition.hold = True
    late, lost = end(machine, 8), end(machine, 9, commit=False)
    machine.loop.advance(TIMEOUT_MS / 1000)
    assert done(late) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    late, lost = end(machine, 8), end(machine, 9, commit=False)
    machine.replicas.lose()
    assert {done(late), done(lost)} == {ErrorCode.NOT_COORDINATOR}


def test_other_operations_see_what_was_collected(machine: Machine) -> None:
    machine.lead()
    machine.submit(add("a"), barrier=False)
    assert machine.submit(read) == ["a"]


def test_a_batch_of_collected_operations_has_a_limit(machine: Machine) -> None:
    partition = machine.lead()
    for number in range(5):
        machine.submit(add(f"{number}" * 100_000), barrier=False)
    machine.loop.settle()
    assert [header.record_count for header in partition.log.headers()] == [2, 2, 1]


def test_collected_operations_fail_together(machine: Machine) -> None:
    partition = machine.lead()
    answers = [machine.submit(add(name), barrier=False) for name in "ab"]
    partition.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    machine.loop.settle()
    assert {done(answer) for answer in answers} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert machine.shards[0].names == []


def test_what_need_not_be_whole_is_written_in_parts(machine: Machine) -> None:
    partition = machine.lead()

    def operation(shard: Counter, token: int, now_ms: int) -> Result:
        result = add(*(f"{number}" * 100_000 for number in range(5)))(shard, token, now_ms)
        result.atomic = False
        return result

    assert machine.submit(operation) == "0 before"
    assert [header.record_count for header in partition.log.headers()] == [3, 2]


def test_an_operation_that_is_refused_answers_at_once(machine: Machine) -> None:
    machine.lead().hold = True
    machine.submit(add("a"))

    def refuse(shard: Counter, token: int, now_ms: int) -> Result:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)

    assert machine.submit(refuse) is ErrorCode.ILLEGAL_GENERATION


def test_a_parked_request_is_answered_by_another_one(machine: Machine) -> None:
    machine.lead()
    tokens: list[int] = []

    def park(shard: Counter, token: int, now_ms: int) -> Result:
        tokens.append(token)
        return Result()

    parked = machine.submit(park)

    def answer(shard: Counter, token: int, now_ms: int) -> Result:
        result = read(shard, token, now_ms)
        result.reply(tokens[0], "from elsewhere")
        return result

    assert machine.submit(answer) == []
    assert done(parked) == "from elsewhere"


def test_a_connection_that_closed_has_cancelled_its_request(machine: Machine) -> None:
    partition = machine.lead()
    partition.hold = True
    writing = machine.submit(add("a"))
    writing.cancel()
    partition.commit()
    assert machine.submit(read) == ["a"]


def test_timers_are_inputs_and_may_write(machine: Machine) -> None:
    machine.lead()

    def arm(shard: Counter, token: int, now_ms: int) -> Result:
        result = read(shard, token, now_ms)
        result.set_timer(("t",), 1_000, ("from timer",))
        result.set_timer(("u",), 1_000)
        result.cancel_timer(("u",))
        return result

    machine.submit(arm)
    machine.loop.advance(0.999)
    assert machine.shards[0].fired == []
    machine.loop.advance(0.001)
    assert machine.submit(read) == ["from timer"]


def test_moving_a_timer_ahead_costs_no_new_handle(machine: Machine) -> None:
    machine.lead()

    def arm(delay_ms: int) -> CoordinatorOperation[Counter]:
        def operation(shard: Counter, token: int, now_ms: int) -> Result:
            result = read(shard, token, now_ms)
            result.set_timer(("t",), delay_ms)
            return result

        return operation

    for _ in range(10):
        machine.submit(arm(1_000))
        machine.loop.advance(0.5)
        assert machine.loop.sleeping() == 1
    assert machine.shards[0].fired == []
    machine.submit(arm(100))
    machine.loop.advance(0.1)
    assert len(machine.shards[0].fired) == 1
    machine.loop.advance(10)
    assert len(machine.shards[0].fired) == 1


def test_close_answers_what_waits(machine: Machine) -> None:
    partition = machine.lead()
    collected = machine.submit(add("a"), barrier=False)
    parked = machine.submit(lambda shard, token, now_ms: Result())
    machine.runtime.close()
    assert done(parked) is ErrorCode.NOT_COORDINATOR
    assert done(collected) == "0 before"
    assert len(partition.log.batches) == 1


def test_everybody_hears_of_the_metadata(machine: Machine) -> None:
    machine.lead()
    machine.runtime.input_all(lambda shard, now_ms: add("x")(shard, 0, now_ms))
    assert machine.submit(read) == ["x"]


def test_codec_is_used_for_what_is_written() -> None:
    machine = Machine()
    machine.runtime._codec = Codec.GZIP
    partition = machine.lead()
    machine.submit(add("a"))
    header = partition.log.headers()[0]
    assert header.compression is Codec.GZIP
    assert [bytes(record.key or b"") for record in iter_records(partition.log.batches[0], 0, header)] == [b"a"]


def test_a_barrier_may_depend_on_the_shard(machine: Machine) -> None:
    partition = machine.lead()
    looked: list[list[str]] = []

    def barrier(shard: Counter) -> bool:
        looked.append(list(shard.names))
        return len(looked) > 1

    def submit(name: str) -> Any:
        return machine.runtime.submit(0, add(name), lambda code: code, barrier=barrier)

    answers = [submit("a")]
    assert not looked, "nothing is collected that could be missed"
    answers += [submit("b"), submit("c")]
    # The first two are written for the third.
    assert looked == [[], []]
    assert [header.record_count for header in partition.log.headers()] == [2]
    machine.loop.settle()
    assert [header.record_count for header in partition.log.headers()] == [2, 1]
    assert [done(answer) for answer in answers] == ["0 before", "0 before", "2 before"]
