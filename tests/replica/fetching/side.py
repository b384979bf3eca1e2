"""A fetcher whose effects act on model logs at once, with a model of its leader."""

from __future__ import annotations

from pykbroker.replica.fetching.fetcher import (
    AppendRecords,
    Effect,
    Fail,
    Fetcher,
    FetcherResponse,
    StartOver,
    TruncateTo,
)
from pykbroker.replica.fetching.follower_requests import FetcherRequest, FetchSettings
from pykbroker.replica.fetching.partition_fetch import PartitionFetch
from pykbroker.replica.quota import ReplicationQuota, WindowedRate
from tests.replica.fetching.leader import Leader, ModelLog

TOPIC_ID = b"t".ljust(16, b".")
BROKER_EPOCH = 9
SETTINGS = FetchSettings(
    max_wait_ms=500, min_bytes=1, partition_max_bytes=1000, response_max_bytes=10_000, backoff_seconds=1.0
)


class Side:
    """Node 1, which follows."""

    def __init__(self, leader: Leader | None = None, settings: FetchSettings = SETTINGS) -> None:
        self.leader = leader or Leader()
        #: bytes per second of throttled partitions
        self.limit = 1 << 62
        self.quota = ReplicationQuota(WindowedRate(lambda: self.now, 11, 1), lambda: self.limit)
        self.fetcher = Fetcher(1, settings, self.quota)
        self.now = 100.0
        self.failed: list[Fail] = []
        #: each truncation: the log and the offset
        self.truncations: list[tuple[ModelLog, int]] = []

    def follow(self, log: ModelLog, epoch: int = 0, index: int = 0, topic_id: bytes = TOPIC_ID) -> PartitionFetch:
        fetch = PartitionFetch("t", topic_id, index, epoch, log)
        effect = self.fetcher.add(fetch)
        if effect is not None:
            self.do(effect)
        return fetch

    def ask(self) -> FetcherRequest | None:
        return self.fetcher.next_request(self.now, BROKER_EPOCH)

    def take(self, response: FetcherResponse) -> list[Effect]:
        effects = self.fetcher.answered(response, self.now)
        for effect in effects:
            self.do(effect)
        return effects

    def round(self) -> list[Effect]:
        """Do one request and take its answer."""
        request = self.ask()
        assert request is not None
        return self.take(self.leader.answer(request))

    def settle(self, rounds: int = 100) -> None:
        """Run until answers bring nothing new, or nothing is to be sent before a delay is over."""
        for _ in range(rounds):
            request = self.ask()
            if request is None:
                return
            effects = self.take(self.leader.answer(request))
            if (
                all(isinstance(effect, AppendRecords) and not effect.records for effect in effects)
                and not self.is_asking()
            ):
                return
        raise AssertionError(f"it does not come to rest in {rounds} rounds")

    def is_asking(self) -> bool:
        return any(fetch.phase.name.startswith("ASKING") for fetch in self.fetcher)

    def do(self, effect: Effect) -> None:
        if isinstance(effect, Fail):
            self.failed.append(effect)
            return
        fetch = effect.fetch
        log = fetch.replica
        assert isinstance(log, ModelLog)
        expects_progress = True
        if isinstance(effect, AppendRecords):
            expects_progress = bool(effect.records)
            log.append(effect.records)
            log.high_watermark = min(max(effect.high_watermark, 0), log.log_end_offset)
            start = min(effect.log_start_offset, log.high_watermark)
            if start > log.log_start_offset:
                log.delete_before(start)
        elif isinstance(effect, TruncateTo):
            self.truncations.append((log, effect.offset))
            log.truncate(effect.offset)
        else:
            assert isinstance(effect, StartOver)
            self.truncations.append((log, effect.offset))
            log.start_over(effect.offset)
        fail = self.fetcher.done(fetch, self.now, expects_progress=expects_progress)
        if fail is not None:
            self.failed.append(fail)
