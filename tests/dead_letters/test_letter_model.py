"""The writer's machine among random events, and deliberately wrong machines that these events must find."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from pykbroker.dead_letters.awaited_topics import AwaitedTopics
from pykbroker.dead_letters.copy_reads import CopyReads
from pykbroker.dead_letters.down_places import DownPlaces
from pykbroker.dead_letters.letter_orders import LetterOrder
from pykbroker.dead_letters.ready_orders import ReadyOrders
from pykbroker.dead_letters.sent_requests import SentRequests
from pykbroker.dead_letters.writer_machine import WriterMachine
from pykbroker.retries.tries import Tries
from testkit.bug_search import search
from testkit.planting import Edit, plant
from tests.dead_letters.letter_model import LetterModel, small_limits

CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@pytest.fixture(autouse=True)
def _limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for (module, name), value in small_limits().items():
        monkeypatch.setattr(module, name, value)


def test_the_rules_hold() -> None:
    run_state_machine_as_test(
        LetterModel,
        settings=settings(max_examples=80, stateful_step_count=50, deadline=None, suppress_health_check=CHECKS),
    )


# ruff: noqa: E501
BUGS: dict[str, list[Edit]] = {
    "a broker gets two requests": [(ReadyOrders.request, "self._busy.add(node_id)", "pass")],
    "a broker stays busy after a failure": [(WriterMachine.failed, "self._ready.answered(request.node_id)", "pass")],
    "a refused letter counts as written": [(WriterMachine.answered, "if error is ErrorCode.NONE:", "if error is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:")],
    "the rest of an order is forgotten": [(WriterMachine._written, "if after > order.letters.last_offset:", "if True:")],
    "an order gets no second try": [(Tries.rest, "if self.failures >= MOST_FAILURES:", "if True:")],
    "an order is tried for ever": [(WriterMachine._try_later, "if rest is None or is_down:", "rest = rest or 1.0\n    if False:")],
    "copies of another range are used": [(LetterOrder.last_known, "min(last, self.copies_through)", "last"), (WriterMachine._written, "if after > order.copies_through:", "if False:")],
    "copies are held for ever": [(CopyReads.release, "self._held[order.held_by] -= order.held_bytes", "pass")],
    "reads are not bounded": [(CopyReads.begin, "len(self._reading) < MOST_READS", "True")],
    "the end of a read is not counted": [(WriterMachine.source_read, "self._copies.ended(order)", "pass")],
    "orders that wait for a topic are forgotten": [(WriterMachine._go_on_after_creations, "if error is ErrorCode.NONE:", "if error is ErrorCode.NONE and len(self) > 2:\n                self._queue(order)\n            elif error is ErrorCode.NONE:\n                pass\n            elif False:")],
    "orders of a creation are left when it is the next one's turn": [(AwaitedTopics.turn, "if not wait.orders:", "if True:")],
    "a turn makes all letters": [(ReadyOrders.request, "most_letters - made.letters)", "1_000)")],
    "a new leader gets nothing until the rest ends": [(WriterMachine.topics_changed, "self._ready.take(first.place)", "[]")],
    "orders that rest do not look for a new leader": [(WriterMachine._look_again, "self._resting.withdraw(order)", "continue")],
    "orders are sent soon after a try that took long": [(DownPlaces.decided, "failed.decides_until > now", "False")],
    "a leader that answers counts as one that hangs": [(WriterMachine.answered, "is_answered=True", "is_answered=False")],
    "orders that wait are not decided": [(WriterMachine._failed, "is not None:", "is not None and False:")],
    "a try decides for ever": [(DownPlaces.decided, "failed.decides_until > now", "True")],
    "too many orders are taken": [(WriterMachine.submit, "if self._count > MOST_ORDERS:", "if False:")],
    "a request has too many partitions": [(ReadyOrders.request, "len(made.batches) >= MOST_PARTITIONS", "False")],
    "a place is lost when its letters do not fit": [(ReadyOrders.request, "if orders:", "if False:")],
    "has_more is not set": [(WriterMachine.take_steps, "self.has_more = bool(", "self.has_more = False and bool(")],
    "a place is down after one failure": [(WriterMachine._try_later, "is_down = not failed.is_moved and self._down.is_down(failed.place, failed.began)", "is_down = order.tries.failures > 1")],
    "a batch that is too large is given up": [(WriterMachine._smaller, "is_alone = ", "return False\n    is_alone = ")],
    "a letter that is too large keeps its copy": [(WriterMachine._smaller, "is_alone and (first.copies", "is_alone and (True or first.copies")],
    "letters wait for a leader that hangs and has lost its place": [(SentRequests.topics_changed, "self._moved.set(place, now + ANSWER_SECONDS)", "pass")],
    "a late answer decides letters that have left their request": [(SentRequests.take, "request.orders.pop(target)", "request.orders[target]")],
    "a new leader waits for a rest": [(WriterMachine._try_later, "if failed.is_moved:", "if False:")],
    "a very large batch shares its request": [(ReadyOrders.request, "is_alone = batch.size > MOST_BATCH_BYTES", "is_alone = False")],
}  # fmt: skip


#: Where the search for a bug begins, if it finds nothing with the first seed.
SEEDS: Final[dict[str, int]] = {
    "reads are not bounded": 3,
    "orders that wait for a topic are forgotten": 6,
    "orders that rest do not look for a new leader": 3,
    "orders are sent soon after a try that took long": 3,
    "a leader that answers counts as one that hangs": 3,
    "orders that wait are not decided": 10,
    "a try decides for ever": 3,
    "a request has too many partitions": 3,
    "a letter that is too large keeps its copy": 10,
    "letters wait for a leader that hangs and has lost its place": 3,
    "a late answer decides letters that have left their request": 3,
    "a new leader waits for a rest": 3,
    "a very large batch shares its request": 6,
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_the_events_find_it(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, BUGS[bug])
    with pytest.raises((AssertionError, ExceptionGroup, IndexError, KeyError)):
        search(LetterModel, seed=SEEDS.get(bug, 0), steps=50)
