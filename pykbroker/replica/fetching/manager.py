"""The fetchers of this node: up to num.replica.fetchers for each leader; each partition is in one of them.

Responsible for starting to fetch a partition when this node follows in a new leader epoch and the log is open, and for
stopping when the role ends. It creates and closes fetchers, and has their metrics. Not responsible for the roles
(partition.py reports their changes), nor for the work of a fetcher (runner.py).

Invariants:
* A partition is in at most one fetcher, which its leader and the hash of its name select.
* A fetcher without partitions is closed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from pykbroker.replica.fetching.fetcher import Fail
from pykbroker.replica.fetching.follower_requests import FetchSettings
from pykbroker.replica.fetching.leader_end_point import FetcherWorld
from pykbroker.replica.fetching.partition_fetch import PartitionFetch, Phase
from pykbroker.replica.fetching.runner import FetcherRunner
from pykbroker_wire.errors import KafkaError

if TYPE_CHECKING:
    from pykbroker.config.typed_config import Config
    from pykbroker.metrics.registry import Metrics
    from pykbroker.net.client import ConnectionSetup, PeerWatch
    from pykbroker.replica.follower import PartitionFollower
    from pykbroker.replica.partition import Partition
    from pykbroker.replica.table import ReplicaTable
    from pykbroker.runtime import Runtime

logger = logging.getLogger(__name__)

#: If a partition's log is busy when the number of fetchers changes, the partition moves to its new fetcher after this
#: pause.
_AGAIN_SECONDS = 0.1
_MANAGER = "kafka.server:type=ReplicaFetcherManager,name={},clientId=Replica"


class FetcherManager:
    """Runs the fetchers of one node. It fetches nothing before `start`."""

    def __init__(
        self,
        runtime: Runtime,
        config: Config,
        replicas: ReplicaTable,
        address: Callable[[int], tuple[str, int] | None],
        broker_epoch: Callable[[], int],
        setup: ConnectionSetup,
        metrics: Metrics,
        watch: PeerWatch | None = None,
    ) -> None:
        """`address` returns the host and port at which other brokers reach a broker, `broker_epoch` the epoch of this
        node's registration. `watch` is notified of events of connections to leaders."""
        self._runtime = runtime
        self._replicas = replicas
        self._count = config.int("num.replica.fetchers")
        self._world = FetcherWorld(
            runtime,
            replicas.node_id,
            fetch_settings(config),
            config.int("replica.socket.timeout.ms"),
            config.int("replica.socket.receive.buffer.bytes"),
            setup,
            address,
            broker_epoch,
            self._failed,
            replicas.quotas.follower,
            watch,
        )
        self._runners: dict[tuple[int, int], FetcherRunner] = {}
        # The fetcher of each role that is being fetched.
        self._runner_of: dict[PartitionFollower, FetcherRunner] = {}
        # Roles that are fetched as soon as their logs are open.
        self._to_begin: dict[PartitionFollower, None] = {}
        self._failed_roles: set[PartitionFollower] = set()
        self._is_scheduled = False
        self._is_closed = False
        metrics.gauge(_MANAGER.format("MaxLag"), lambda: max((fetch.lag for fetch in self._lags()), default=0))
        metrics.gauge(_MANAGER.format("MinFetchRate"), self._least_rate)
        metrics.gauge(_MANAGER.format("FailedPartitionsCount"), lambda: len(self._failed_roles))
        metrics.gauge(_MANAGER.format("DeadThreadCount"), lambda: sum(r.is_dead for r in self._runners.values()))
        metrics.family(self._gauges)

    def start(self) -> None:
        """Begin to fetch. Call it once, when the metadata is complete and logs may be opened."""
        self._replicas.on_following(self._follow)

    def close(self) -> None:
        self._is_closed = True
        self._to_begin.clear()
        for runner in self._runners.values():
            runner.close()
        self._runners.clear()

    # -- roles --------------------------------------------------------------------------------------------------------

    def _follow(self, partition: Partition, follower: PartitionFollower) -> None:
        """Begin to follow in a new leader epoch."""
        if follower.leader < 0 or self._is_closed:
            return
        follower.watch(self)
        partition.when_recovered(partial(self._begin_soon, follower))

    def role_ended(self, follower: PartitionFollower) -> None:
        """Stop fetching for a role that is over."""
        self._to_begin.pop(follower, None)
        self._failed_roles.discard(follower)
        self._stop(follower)

    def _stop(self, follower: PartitionFollower) -> None:
        runner = self._runner_of.pop(follower, None)
        if runner is not None:
            fetch = runner.find(follower)
            if fetch is not None:
                runner.remove(fetch)
            self._look_at(runner)

    def _failed(self, fail: Fail) -> None:
        """Handle a partition that the runner has dropped."""
        fetch = fail.fetch
        partition = self._replicas.find(fetch.topic, fetch.index)
        follower = None if partition is None else partition.follower
        if follower is not None and follower is fetch.replica:
            self._mark_failed(follower, fail.reason, logging.INFO if fail.is_expected else logging.WARNING)
            self._stop(follower)

    def _mark_failed(self, follower: PartitionFollower, reason: str, level: int = logging.WARNING) -> None:
        self._failed_roles.add(follower)
        logger.log(
            level, "Partition %s marked as failed in leader epoch %d: %s", follower, follower.leader_epoch, reason
        )

    def directory_failed(self) -> None:
        """Stop fetching replicas whose log directory failed."""
        for follower in [follower for follower in self._runner_of if follower.handle.offline]:
            self._stop(follower)
        self._failed_roles = {follower for follower in self._failed_roles if not follower.handle.offline}

    # -- beginning: logs are opened in turns of the loop --------------------------------------------------------------

    def _begin_soon(self, follower: PartitionFollower) -> None:
        if follower.is_over or self._is_closed:
            return
        self._to_begin[follower] = None
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._runtime.loop.call_soon(self._begin)

    def _begin(self) -> None:
        followers = list(self._to_begin)
        opened = self._replicas.logs.opener.when_open(follower.handle for follower in followers)
        if opened is None:
            self._begin_all(followers)
        else:
            opened.add_done_callback(lambda done: self._begin_all(followers))

    def _begin_all(self, followers: Iterable[PartitionFollower]) -> None:
        self._is_scheduled = False
        for follower in followers:
            # In the meantime the role has neither ended nor been started.
            if follower in self._to_begin:
                del self._to_begin[follower]
                self._add(follower)
        self._close_idle()
        if self._to_begin:
            self._schedule()
        else:
            # Frees the memory of thousands of former entries, which a dict keeps when its entries are deleted one by
            # one.
            self._to_begin.clear()

    def _add(self, follower: PartitionFollower) -> None:
        handle = follower.handle
        try:
            fetch = PartitionFetch(handle.topic, handle.topic_id, handle.index, follower.leader_epoch, follower)
            self._place(fetch, follower)
        except KafkaError as error:
            if not handle.offline:
                self._mark_failed(follower, str(error))

    # -- fetchers -----------------------------------------------------------------------------------------------------

    def _place(self, fetch: PartitionFetch, follower: PartitionFollower) -> None:
        """Put a partition into its fetcher. Raises KafkaError if the log cannot be used."""
        key = follower.leader, fetcher_of(fetch.topic, fetch.index, self._count)
        runner = self._runners.get(key)
        if runner is None:
            runner = self._runners[key] = FetcherRunner(self._world, *key)
        runner.add(fetch, follower)
        self._runner_of[follower] = runner

    def reconfigure(self, config: Config) -> None:
        """Apply num.replica.fetchers, which is dynamic: partitions move to their new fetchers."""
        count = config.int("num.replica.fetchers")
        if count != self._count:
            self._count = count
            self._move()

    def _move(self) -> None:
        if self._is_closed:
            return
        has_to_wait = False
        for follower, runner in list(self._runner_of.items()):
            fetch = runner.find(follower)
            if fetch is None or runner.number == fetcher_of(fetch.topic, fetch.index, self._count):
                continue
            if fetch.phase is Phase.WORKING:
                has_to_wait = True
                continue
            self._stop(follower)
            self._add(follower)
        self._close_idle()
        if has_to_wait:
            self._runtime.loop.call_later(_AGAIN_SECONDS, self._move)

    def _look_at(self, runner: FetcherRunner) -> None:
        """Close the fetcher in the next turn of the loop if it has lost its last partition and gets none until then. A
        new leader epoch often brings the partition back."""
        if not len(runner):
            self._runtime.loop.call_soon(self._close_idle)

    def _close_idle(self) -> None:
        for key, runner in list(self._runners.items()):
            if not len(runner):
                runner.close()
                del self._runners[key]

    # -- metrics ------------------------------------------------------------------------------------------------------

    def _lags(self) -> Iterator[PartitionFetch]:
        return (fetch for runner in self._runners.values() for fetch in runner if fetch.lag >= 0)

    def _least_rate(self) -> float:
        return min((runner.end_point.requests.one_minute() for runner in self._runners.values()), default=0.0)

    def _gauges(self) -> Iterator[tuple[str, float]]:
        # Runners and their partitions come and go while the caller pauses.
        runners = list(self._runners.values())
        for runner in runners:
            host, port = runner.end_point.address
            name = "kafka.server:type=FetcherStats,name={},clientId={},brokerHost={},brokerPort={}"
            yield name.format("RequestsPerSec", runner.name, host, port), runner.end_point.requests.count
            yield name.format("BytesPerSec", runner.name, host, port), runner.bytes.count
        lag = "kafka.server:type=FetcherLagMetrics,name=ConsumerLag,clientId={},topic={},partition={}"
        for runner in runners:
            for fetch in list(runner):
                yield lag.format(runner.name, fetch.topic, fetch.index), fetch.lag


def fetch_settings(config: Config) -> FetchSettings:
    """Return the values of replica.fetch.*"""
    return FetchSettings(
        max_wait_ms=config.int("replica.fetch.wait.max.ms"),
        min_bytes=config.int("replica.fetch.min.bytes"),
        partition_max_bytes=config.int("replica.fetch.max.bytes"),
        response_max_bytes=config.int("replica.fetch.response.max.bytes"),
        backoff_seconds=config.int("replica.fetch.backoff.ms") / 1000,
    )


def fetcher_of(topic: str, index: int, count: int) -> int:
    """Return the number of a partition's fetcher, of `count`, as in Apache Kafka."""
    code = 0
    for character in topic:
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    code = (31 * code + index) & 0xFFFFFFFF
    if code >= 1 << 31:
        code = (1 << 32) - code
        # In Java the least int has no positive counterpart, so Apache Kafka takes 0.
        if code == 1 << 31:
            code = 0
    return code % count
