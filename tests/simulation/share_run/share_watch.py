"""Tells the invariants of share groups what the leaders of share partitions do, in a run of the whole cluster.

Responsible for the calls: each method of a leader that matters is followed by one. It changes nothing, so a seed gives
the same run with it and without it. Not responsible for the rules (invariants/share_groups.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

from pykbroker.dead_letters.letter_writer import LetterWriter
from pykbroker.net.promise import Promise
from pykbroker.share_leaders.leader_states import LeaderState
from pykbroker.share_leaders.leader_table import ShareLeaders
from pykbroker.share_leaders.share_partition_leader import SharePartitionLeader
from pykbroker.share_partitions.share_sessions import ShareSessions
from pykbroker_wire.errors import ErrorCode, KafkaError
from tests.simulation.invariants.share_groups import Leadership, Load, ShareInvariants, ShareKey
from tests.simulation.invariants.watcher import Watcher, watching

if TYPE_CHECKING:
    from pykbroker.dead_letters.letter_orders import LetterOrder
    from pykbroker.share_leaders.dead_letters import DeadLetters
    from pykbroker.share_leaders.state_load import LoadedState
    from pykbroker.share_partitions.acknowledged_ranges import AcknowledgedRange
    from pykbroker.share_partitions.acquisition import Acquire, AcquiredRange
    from pykbroker.share_partitions.share_sessions import EndedSession, ShareSession
    from pykbroker.share_partitions.state_changes import DeliveryWrite
    from pykbroker.share_persister.state_operations import ShareStateAnswer
    from pykbroker_worlds.history.events import History
    from pykbroker_worlds.simulated.sim_cluster import SimCluster


class ShareWatch:
    """The leaderships of one run."""

    def __init__(self, cluster: SimCluster, history: History, watcher: Watcher, invariants: ShareInvariants) -> None:
        self.history = history
        self._cluster = cluster
        self._watcher = watcher
        self.invariants = invariants
        self._led: dict[SharePartitionLeader, Leadership] = {}
        #: the sessions that ended in this event
        self.ended: list[tuple[ShareSessions, EndedSession]] = []
        cluster.world.after_event.append(self.look)

    def led(self, leader: SharePartitionLeader) -> Leadership:
        found = self._led.get(leader)
        if found is None:
            partition = leader.partition
            key = ShareKey(leader.key.group_id, (partition.topic, partition.index))
            found = self._led[leader] = Leadership(key, partition._shared.node_id, leader.leader_epoch)
        log = leader.partition.log_if_open
        if log is not None:
            found.log_start = log.log_start_offset
        return found

    def others(self, leader: SharePartitionLeader) -> list[Leadership]:
        """Return the leaderships of the same share partition in the same leader epoch and life of the broker."""
        return [
            led
            for each, led in self._led.items()
            if each is not leader
            and (each.key, each.leader_epoch) == (leader.key, leader.leader_epoch)
            and each._services is leader._services
        ]

    def gives_up(self, letters: DeadLetters, first: int) -> None:
        """Note that a broker has given up the letters of a range from this offset on."""
        for key, lives in self.invariants.lives.items():
            names = {led.key for leader, led in self._led.items() if leader.key.topic_id == letters.topic_id}
            if key in names and key.group == letters.group_id and key.place[1] == letters.partition:
                for life in lives.values():
                    life.given_up.update(range(first, letters.last_offset + 1))

    def look(self) -> None:
        """Check after an event: the locks of sessions that ended in it are released."""
        ended, self.ended = self.ended, []
        for sessions, (key, partitions) in ended:
            if sessions.peek(key) is not None:
                continue  # the member has another session, and keeps its locks
            for leader in list(self._led):
                is_of_session = leader.key.group_id == key.group and leader.key[1:] in partitions
                if is_of_session and not leader.has_left and _table(leader).sessions is sessions:
                    self._session_ended(leader, key.member)

    def _session_ended(self, leader: SharePartitionLeader, member: str) -> None:
        now_ms = leader._now_ms()
        held = [
            (first, last) for first, last, owner, ends in leader.machine.locks() if owner == member and ends > now_ms
        ]
        self.check(leader, lambda: self.invariants.session_ended(self.led(leader), member, held))

    def check(self, leader: SharePartitionLeader, call: Callable[[], object]) -> Any:
        """Call the invariants for a leader, unless its process is dead: it does nothing in the rest of the event."""
        if not self._cluster.nodes[leader.partition._shared.node_id].is_alive:
            return None
        try:
            return call()
        except AssertionError as error:
            self._watcher.note(error)
            return None


def _table(leader: SharePartitionLeader) -> ShareLeaders:
    table = leader._services.left.__self__  # type: ignore[attr-defined]
    assert isinstance(table, ShareLeaders)
    return table


@contextmanager
def watching_shares(cluster: SimCluster, history: History, invariants: ShareInvariants) -> Iterator[Watcher]:
    """Watch a cluster, and the leaders of its share partitions."""
    with watching(cluster, history) as watcher, _hooks(ShareWatch(cluster, history, watcher, invariants)):
        yield watcher


@contextmanager
def _hooks(watch: ShareWatch) -> Iterator[None]:
    rules = watch.invariants
    loaded, leave = SharePartitionLeader._loaded, SharePartitionLeader._leave
    acquire, give_back = SharePartitionLeader.acquire, SharePartitionLeader.give_back
    acknowledge, release = SharePartitionLeader.acknowledge, SharePartitionLeader.release
    expire, write = SharePartitionLeader._expire, SharePartitionLeader._write
    end_session, end_letters = ShareSessions._end, LetterWriter._end

    def loads(leader: SharePartitionLeader, *arguments: Any) -> None:
        found: LoadedState | KafkaError = arguments[-1]
        if not isinstance(found, KafkaError):
            states = {
                offset: (each.delivery_count, each.state)
                for each in found.machine.ranges()
                for offset in range(each.first, each.last + 1)
            }
            load = Load(
                found.machine.start_offset,
                states,
                found.state_epoch,
                found.is_start_stored,
                began_s=arguments[0],
                at=watch.history.now(),
            )
            watch.check(leader, lambda: rules.loaded(watch.led(leader), load))
        loaded(leader, *arguments)

    def leaves(leader: SharePartitionLeader, state: LeaderState, error: ErrorCode) -> None:
        rules.left(watch.led(leader))
        leave(leader, state, error)

    def acquires(leader: SharePartitionLeader, ask: Acquire) -> list[AcquiredRange]:
        found = acquire(leader, ask)
        led, others = watch.led(leader), watch.others(leader)
        now_ms, duration_ms = leader._now_ms(), leader.limits.lock_duration_ms
        watch.check(leader, lambda: rules.acquired(led, others, ask.member, found, now_ms, duration_ms))
        watch.check(leader, lambda: rules.starts_at(led, leader.machine.start_offset))
        return found

    def gives_back(leader: SharePartitionLeader, member: str, acquired: Sequence[AcquiredRange]) -> None:
        if leader.state is LeaderState.ACTIVE:
            rules.given_back(watch.led(leader), member, acquired)
        give_back(leader, member, acquired)

    def acknowledges(
        leader: SharePartitionLeader, member: str, ranges: Sequence[AcknowledgedRange], *, is_renewal: bool
    ) -> Promise:
        led = watch.led(leader)
        limits, start = leader.limits, leader.machine.start_offset
        until_ms = leader._now_ms() + limits.lock_duration_ms
        begun = watch.check(
            leader, lambda: rules.acknowledges(led, member, types_of(ranges), start, limits.delivery_count, until_ms)
        )

        def ended(error: ErrorCode) -> None:
            if begun is not None:
                success = error is ErrorCode.NONE
                watch.check(leader, lambda: rules.acknowledged(begun, success=success, now_ms=leader._now_ms()))

        return noted(acknowledge(leader, member, ranges, is_renewal=is_renewal), ended)

    def releases(leader: SharePartitionLeader, member: str) -> Promise:
        if leader.state is LeaderState.ACTIVE:
            rules.released(watch.led(leader), member, leader.limits.delivery_count)
        return release(leader, member)

    def expires(leader: SharePartitionLeader) -> None:
        watch.check(leader, lambda: rules.expired(watch.led(leader), leader._now_ms(), leader.limits.delivery_count))
        expire(leader)

    def sends(leader: SharePartitionLeader, wanted: DeliveryWrite) -> Promise:
        states = {
            offset: (each.delivery_count, each.state)
            for each in wanted.ranges
            for offset in range(each.first, each.last + 1)
        }
        begun = watch.check(leader, lambda: rules.writes(watch.led(leader), wanted.start, states))

        def ended(answer: ShareStateAnswer) -> None:
            if begun is not None and answer.error is ErrorCode.NONE:
                watch.check(leader, lambda: rules.written(begun))

        return noted(write(leader, wanted), ended)

    def ends_session(sessions: ShareSessions, session: ShareSession) -> EndedSession:
        ended = end_session(sessions, session)
        watch.ended.append((sessions, ended))
        return ended

    def ends_letters(writer: LetterWriter, order: LetterOrder) -> None:
        if order.problem:
            watch.gives_up(order.letters, order.next_offset)
        end_letters(writer, order)

    with (
        mock.patch.object(LetterWriter, "_end", ends_letters),
        mock.patch.object(SharePartitionLeader, "_loaded", loads),
        mock.patch.object(SharePartitionLeader, "_leave", leaves),
        mock.patch.object(SharePartitionLeader, "acquire", acquires),
        mock.patch.object(SharePartitionLeader, "give_back", gives_back),
        mock.patch.object(SharePartitionLeader, "acknowledge", acknowledges),
        mock.patch.object(SharePartitionLeader, "release", releases),
        mock.patch.object(SharePartitionLeader, "_expire", expires),
        mock.patch.object(SharePartitionLeader, "_write", sends),
        mock.patch.object(ShareSessions, "_end", ends_session),
    ):
        yield


def noted(promise: Promise, note: Callable[[Any], object]) -> Promise:
    """Return a promise with the same result, before which `note` gets it. A promise has one callback only."""
    outer = Promise()

    def ended(inner: Promise) -> None:
        note(inner.result())
        outer.set_result(inner.result())

    promise.add_done_callback(ended)
    outer.when_cancelled(promise.cancel)
    return outer


def types_of(ranges: Sequence[AcknowledgedRange]) -> dict[int, int]:
    """Return the type of each acknowledged offset. A single type is that of the whole range."""
    found: dict[int, int] = {}
    for each in ranges:
        kinds = each.acknowledge_types
        for offset in range(each.first_offset, each.last_offset + 1):
            found[offset] = kinds[0] if len(kinds) == 1 else kinds[offset - each.first_offset]
    return found
