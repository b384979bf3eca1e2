"""Three replicas that lead in turn: followers become equal to their leader, and no committed record is ever cut off.

The logs are models, the fetchers are real. Each election is clean: all three replicas are in the ISR, and the leader's
high watermark is the end that all of them have proved by their fetches.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from hypothesis.strategies import integers

from pykbroker.replica.fetching.fetcher import FetcherResponse
from pykbroker.replica.fetching.follower_requests import FetcherRequest
from pykbroker_wire.messages.fetch import FetchResponse
from tests.replica.fetching.leader import Leader, ModelLog
from tests.replica.fetching.side import TOPIC_ID, Side

REPLICAS = 3


class Replicas(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.logs = [ModelLog() for _ in range(REPLICAS)]
        self.epoch = 0
        self.committed: list[tuple[int, int, int]] = []
        self.elect(0)

    @rule(number=integers(0, REPLICAS - 1))
    def elect(self, number: int) -> None:
        """Begin a new leader epoch. Requests and answers of the former epoch are lost. Other tests have late ones."""
        self.epoch += 1
        self.number = number
        self.logs[number].lead(self.epoch)
        self.proved = {follower: 0 for follower in range(REPLICAS) if follower != number}
        self.sides: dict[int, Side] = {}
        self.requests: dict[int, FetcherRequest] = {}
        self.answers: dict[int, FetcherResponse] = {}
        for follower in self.proved:
            leader = Leader()
            leader.logs[TOPIC_ID, 0] = self.logs[number]
            self.sides[follower] = Side(leader)
            self.sides[follower].follow(self.logs[follower], self.epoch)

    @rule(count=integers(1, 3), records=integers(1, 3))
    def write(self, count: int, records: int) -> None:
        self.logs[self.number].write(count, records)

    @rule(follower=integers(0, REPLICAS - 1))
    def ask(self, follower: int) -> None:
        side = self.sides.get(follower)
        if side is not None and not side.fetcher.is_waiting:
            side.now += 1
            request = side.ask()
            assert request is not None
            self.requests[follower] = request

    @rule(follower=integers(0, REPLICAS - 1))
    def answer(self, follower: int) -> None:
        request = self.requests.pop(follower, None)
        if request is None:
            return
        answered = self.sides[follower].leader.answer(request)
        self.answers[follower] = answered
        if isinstance(answered, FetchResponse):
            self._prove(follower, answered)

    def _prove(self, follower: int, answered: FetchResponse) -> None:
        """Note that the leader has served records from an offset on, so the follower has all records before."""
        leader = self.sides[follower].leader
        asked = leader.asked[TOPIC_ID, 0]
        answers = [data for topic in answered.responses for data in topic.partitions]
        if any(data.error_code or data.diverging_epoch.epoch >= 0 for data in answers):
            return
        self.proved[follower] = max(self.proved[follower], asked.fetch_offset)
        log = self.logs[self.number]
        log.high_watermark = max(log.high_watermark, min(log.log_end_offset, *self.proved.values()))

    @rule(follower=integers(0, REPLICAS - 1))
    def arrive(self, follower: int) -> None:
        answered = self.answers.pop(follower, None)
        if answered is not None:
            self.sides[follower].take(answered)

    @rule(follower=integers(0, REPLICAS - 1))
    def lose(self, follower: int) -> None:
        if self.requests.pop(follower, None) or self.answers.pop(follower, None):
            side = self.sides[follower]
            side.fetcher.unanswered(side.now)

    @invariant()
    def nothing_committed_is_lost(self) -> None:
        if not hasattr(self, "logs"):
            return
        leader = self.logs[self.number]
        now = [entry for entry in leader.contents() if entry[1] < leader.high_watermark]
        common = min(len(now), len(self.committed))
        assert now[:common] == self.committed[:common]
        if len(now) > len(self.committed):
            self.committed = now
        for log in self.logs:
            assert log.contents()[: len(self.committed)] == self.committed
            assert log.high_watermark <= log.log_end_offset
        for side in self.sides.values():
            assert not side.failed

    def teardown(self) -> None:
        if not hasattr(self, "logs"):
            return
        for follower in self.sides:
            self.lose(follower)
        for _ in range(40):
            for follower in self.sides:
                self.ask(follower)
                self.answer(follower)
                self.arrive(follower)
        leader = self.logs[self.number]
        for log in self.logs:
            assert log.contents() == leader.contents()
            assert log.high_watermark == leader.high_watermark == leader.log_end_offset


Replicas.TestCase.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
TestReplicas = pytest.mark.slow(Replicas.TestCase)
