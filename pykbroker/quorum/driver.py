"""Runs a raft node: gives it time, messages and a disk, and carries out its `Ready`.

Responsible for the order of actions. The loop has these duties (`_work`):

1. Take the node's `Ready`. It lists everything that the inputs so far have caused.
2. If it has an election state or the last piece of a snapshot, make that durable on a thread (`_begin`). Until then the
   loop stands still and inputs wait, because every message of this Ready depends on it.
3. Write the log, in the order of the Ready: an append is a copy into the page cache, a truncation cuts (`_write`). If
   the disk is full, wait for room and go on with the same step (`_wait_for_room`).
4. Send the requests and then the replies (`_send`, `_reply`). No message waits for an fsync of the log, because the
   node counts only what `flushed` has reported.
5. Begin an fsync if the Ready asks for one (`MetadataFlush`). It runs on a thread, one at a time, and appends during it
   share the next. Its end is an input. A disk that waits for no device needs no thread.
6. Note the high watermark, and then a change of the leader, for the listeners.
7. Begin again at 1 until the Ready is empty. Then run the next input: a request, an answer, a timer, the end of a
   flush. Inputs never run inside each other.
8. If no input waits, set the timer to the node's deadline, report what this replica knows of the quorum, and call the
   listeners with what is committed. A listener may append at once: its Ready follows the one that called it.

Not responsible for any decision: `pykbroker_raft` decides.

A disk error or a broken rule ends this replica: it no longer leads, `append` raises, and `failed` has the error. The
node above decides what to do about it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from pykbroker.net.connection import CloseConnection
from pykbroker.quorum.awaited_answers import AwaitedAnswers, fill
from pykbroker.quorum.blocking_calls import BlockingCalls
from pykbroker.quorum.channel import NoPeers, QuorumPeers, response_to
from pykbroker.quorum.deadline_timer import DeadlineTimer
from pykbroker.quorum.describe_quorum import describe_quorum
from pykbroker.quorum.known_quorum import KnownQuorum
from pykbroker.quorum.metadata_flush import MetadataFlush
from pykbroker.quorum.metadata_listeners import MetadataListener, MetadataListeners
from pykbroker.quorum.metadata_room import MetadataRoom
from pykbroker.quorum.raft_lines import RaftLines
from pykbroker.quorum.replica_opening import QuorumConfig, open_replica
from pykbroker.quorum.snapshot_writing import SnapshotJob
from pykbroker.quorum.snapshots_due import SnapshotsDue
from pykbroker.runtime import Runtime
from pykbroker_log.log_config import StorageError
from pykbroker_raft.checkpoint import CorruptMetadataSnapshot
from pykbroker_raft.log_view import OffsetAndEpoch
from pykbroker_raft.metadata_storage import MetadataStorage, SnapshotDropped
from pykbroker_raft.raft_node import Inbound, NotLeader, RaftNode
from pykbroker_raft.ready import (
    Append,
    Destination,
    LeaderChange,
    LogStep,
    Now,
    Outgoing,
    Ready,
    Reply,
    SnapshotChunk,
    Truncate,
)
from pykbroker_raft.states import Resigned
from pykbroker_raft.voters import VoterSet, address
from pykbroker_wire.messages.describe_quorum import DescribeQuorumRequest

logger = logging.getLogger(__name__)

_LATEST = 32767


@dataclass(frozen=True, slots=True)
class _Replica:
    """The parts that exist from the start on."""

    node: RaftNode
    storage: MetadataStorage
    room: MetadataRoom
    flush: MetadataFlush
    snapshots: SnapshotJob


class QuorumDriver:
    """A running replica of the metadata quorum. All methods belong to the loop."""

    def __init__(
        self,
        runtime: Runtime,
        config: QuorumConfig,
        peers: QuorumPeers | None = None,
        *,
        on_failure: Callable[[BaseException], None] = lambda error: None,
        on_snapshot_due: Callable[[QuorumDriver], object] | None = None,
    ) -> None:
        """`on_failure` is called once when the disk fails, `on_snapshot_due` when `write_snapshot` is to be called."""
        self.node_id = config.raft.node_id
        self.cluster_id = config.raft.cluster_id
        self.failed: BaseException | None = None
        self._on_failure = on_failure
        self._on_snapshot_due = on_snapshot_due
        self._runtime = runtime
        self._config = config
        self._peers: QuorumPeers = peers if peers is not None else NoPeers(runtime)
        self._listeners = MetadataListeners(self.node_id)
        self._calls = BlockingCalls(runtime)
        self._started: _Replica | None = None
        self._inputs: deque[Callable[[], None]] = deque()
        self._busy = False  # a blocking step is under way, and inputs wait
        self._working = False
        self._stopped = False
        self._timer = DeadlineTimer(runtime.loop, self._tick)
        self._answers = AwaitedAnswers(runtime.loop)
        self._snapshots_due = SnapshotsDue(
            runtime,
            self._listeners,
            self._ask_for_snapshot,
            snapshot_bytes=config.snapshot_bytes,
            interval_ms=config.snapshot_interval_ms,
        )
        self._lines = RaftLines(self.node_id, self.cluster_id)
        self._known = KnownQuorum(self.node_id)
        self._tell_known: Callable[[KnownQuorum], None] = lambda known: None
        # While stopping: done when the voters have been notified that this leader leaves.
        self._handed_on: asyncio.Future[None] | None = None

    # State

    @property
    def _replica(self) -> _Replica:
        assert self._started is not None, "the quorum is not started"
        return self._started

    @property
    def node(self) -> RaftNode:
        return self._replica.node

    @property
    def storage(self) -> MetadataStorage:
        return self._replica.storage

    @property
    def leader_id(self) -> int | None:
        if self._started is None:
            return None
        node = self.node
        return None if node.state.leader_id == self.node_id and not node.is_leader else node.state.leader_id

    @property
    def leader(self) -> Destination | None:
        """The address at which the leader listens for other nodes."""
        leader_id = self.leader_id
        endpoint = address(self.node.leader_endpoints, self._config.raft.listener)
        return None if leader_id is None or endpoint is None else Destination(leader_id, endpoint.host, endpoint.port)

    @property
    def epoch(self) -> int:
        return self.node.epoch

    @property
    def is_leader(self) -> bool:
        started = self._started
        can_lead = not self._busy and self.failed is None and not self._stopped
        return started is not None and started.node.is_leader and can_lead

    @property
    def high_watermark(self) -> int | None:
        """Exclusive: the offset after the last committed record. None before any record is known to be committed."""
        return self.node.high_watermark

    @property
    def log_end_offset(self) -> int:
        return self.node.log.end_offset

    @property
    def kraft_version(self) -> int:
        return self.node.history.kraft_version

    @property
    def is_short_of_room(self) -> bool:
        """True if the disk is full. Then records are written into the room of the reserve, until `restore_reserve`."""
        return self._replica.room.is_short

    def restore_reserve(self) -> asyncio.Future[bool]:
        """Create the reserve again. The result is True if there was room for it."""
        return self._replica.room.restore_reserve(self._look_at_known)

    @property
    def is_only_voter(self) -> bool:
        """True if this node is the only voter of the quorum."""
        return set(self.voters.ids()) == {self.node_id}

    @property
    def voters(self) -> VoterSet:
        return self.node.voters

    def when_known(self, callback: Callable[[KnownQuorum], None]) -> None:
        """Call `callback` with the state of the quorum that this replica knows, now and after each change. Call this
        once."""
        self._tell_known = callback
        callback(self._known)

    def _look_at_known(self) -> None:
        known = KnownQuorum(
            self.node_id, self.leader_id, self.leader, self.kraft_version, self.is_only_voter, self.is_short_of_room
        )
        if known != self._known:
            self._known = known
            self._tell_known(known)

    # Life

    async def start(self, *, stands: bool = False) -> None:
        """Open the disk and take up a role. On return the only voter of a quorum leads and can append. `stands`: begin
        an election at once (`RaftNode.start`)."""
        config = self._config
        storage, node = await self._runtime.run_blocking(open_replica, self._runtime, config)
        self._started = _Replica(
            node,
            storage,
            MetadataRoom(self._runtime, self._calls, storage),
            MetadataFlush(
                self._runtime.loop,
                self._calls,
                storage.flush,
                lambda: node.log.end_offset,
                self._flushed,
                self._fail,
                lambda: config.append_linger_ms if node.is_leader else 0,
            ),
            SnapshotJob(self._runtime, self._calls, node, storage, self._snapshot_written, self._fail),
        )
        self._listeners.open(storage)
        self._snapshots_due.start()
        started: asyncio.Future[None] = self._runtime.loop.create_future()
        self._input(lambda: node.start(self._now(), stands=stands))
        # This input runs after everything that the start writes first.
        self._input(lambda: started.set_result(None))
        await started
        if self.failed is not None:
            raise self.failed

    async def stop(self, timeout_ms: int = 1000) -> None:
        """Give the leadership to another voter if there is one, write everything out, close."""
        if self._started is None or self._stopped:
            return
        node, storage = self.node, self.storage
        if self.failed is None:
            has_successors = node.is_leader and len(node.voters) > 1
            self._handed_on = self._runtime.loop.create_future()
            self._input(lambda: node.shut_down(self._now()))
            if has_successors:
                # Give EndQuorumEpoch a moment to arrive.
                await asyncio.wait([self._handed_on], timeout=timeout_ms / 1000)
            self._handed_on.cancel()
        self._stopped = True
        self._started.room.close()
        self._started.flush.close()
        self._started.snapshots.close()
        self._snapshots_due.close()
        self._timer.cancel()
        self._answers.cancel_all()
        self._peers.close()
        await self._calls.all_returned()
        try:
            await self._runtime.run_blocking(storage.close)
        except StorageError as error:
            logger.warning("The metadata log in %s could not be closed: %s", self._config.log_dir, error)

    # Calls of the node above

    def append(self, records: list[bytes]) -> int:
        """Append framed values as one batch. Returns the offset of the last value. Raises NotLeader, or StorageError if
        the disk fails or is full. With a full disk nothing was appended, and a later append may succeed."""
        if self.failed is not None:
            raise self.failed
        if not self.is_leader or self._inputs:
            raise NotLeader(f"node {self.node_id} does not lead the quorum")
        node = self.node
        has_room = self.storage.has_room_for(sum(map(len, records)))
        self._look_at_known()
        if not has_room:
            if len(node.voters) > 1:
                # Another voter may have room, and a leader that cannot write is no use to the cluster.
                self.resign()
                raise NotLeader(f"node {self.node_id} has no room for the metadata log, and steps down")
            full = OSError(errno.ENOSPC, "no room for metadata, not even without the reserve")
            raise StorageError(self._config.log_dir, full)
        offset = node.propose(records, self._now())
        self._work(values=records)
        if self.failed is not None:
            raise self.failed
        return offset

    def raise_kraft_version(self, version: int, *, validate_only: bool) -> None:
        """Change from configured voters to voters in the log. Raises NotLeader, or INVALID_UPDATE_VERSION."""
        if not self.is_leader or self._inputs:
            raise NotLeader(f"node {self.node_id} does not lead the quorum")
        self.node.raise_kraft_version(version, self._now(), validate_only=validate_only)
        self._work()

    def register(self, listener: MetadataListener, up_to_date: Callable[[], None] | None = None) -> None:
        """Call this listener with all committed records from the latest snapshot on, and then with later ones."""
        self._listeners.register(listener, up_to_date)
        self._runtime.loop.call_soon(self._tell)

    def unregister(self, listener: MetadataListener) -> None:
        self._listeners.unregister(listener)

    def resign(self) -> None:
        """Step down. The quorum elects again."""
        self._input(lambda: self.node.resign(self._now()))

    def peer_refused(self, host: str, port: int) -> None:
        """Note that a node to which there was a connection refuses a new one."""
        leader, epoch = self.leader, self.epoch
        if leader is not None and (leader.host, leader.port) == (host, port):
            self._input(lambda: self.node.leader_refused(leader.id, epoch, self._now()))

    def handle(self, request: Any, version: int | None = None, listener: str | None = None) -> Any:
        """Answer a request of the quorum with a response, or a future of one. `version` is that of the received
        request, `listener` the name of the listener that received it. The answer has the leader's endpoint for the same
        listener. Raises CloseConnection while the node takes no part, as before its start and while it stops."""
        if self.failed is not None or self._stopped or self._started is None:
            raise CloseConnection(f"node {self.node_id} is no replica of the quorum now")
        known_version = _LATEST if version is None else version
        if isinstance(request, DescribeQuorumRequest):
            return describe_quorum(self.node, request, known_version, self._now())
        token, answer = self._answers.open()
        inbound = Inbound(token, request, known_version, listener or self._config.raft.listener)
        self._input(lambda: self.node.receive(inbound, self._now()))
        if answer.done() and not answer.cancelled() and answer.exception() is None:
            return answer.result()
        answer.add_done_callback(lambda done: self._abandoned(token) if done.cancelled() else None)
        return answer

    def _abandoned(self, token: int) -> None:
        """Drop the request of a connection that is gone, because a parked fetch must not outlive its connection."""
        if self._answers.take(token) is not None:
            self.node.forget(token)

    def write_snapshot(self, offset: int, epoch: int, values: Iterable[bytes]) -> asyncio.Future[None]:
        """Write a snapshot of all records up to `offset`, inclusive. A thread reads `values`, which must not change."""
        return self._replica.snapshots.write(offset, epoch, values)

    # Inputs, one at a time

    def _now(self) -> Now:
        return Now(int(self._runtime.loop.time() * 1000), self._runtime.now_ms())

    def _input(self, step: Callable[[], None]) -> None:
        self._inputs.append(step)
        self._work()

    def _work(self, values: list[bytes] | None = None) -> None:
        """Carry out the node's Ready, then the next input, and so on, until a step has to wait for the disk."""
        if self._busy or self._working or self._started is None:
            if values is not None:
                # A listener appends while a Ready is carried out. Its bytes are written after those of that Ready.
                self._execute_pending(values)
            return
        self._working = True
        try:
            while not self._busy and self.failed is None:
                ready = self.node.ready()
                if ready:
                    self._begin(ready, values)
                    values = None
                elif self._inputs and not self._stopped:
                    self._inputs.popleft()()
                else:
                    break
        except Exception as error:  # noqa: BLE001  # a replica that broke one of its own rules must not go on voting
            self._fail(error)
        finally:
            self._working = False
        if not self._stopped:
            self._timer.set(self.node.deadline_ms, may_begin=self.failed is None and not self._busy)
        self._lines.voters(self.node.voters, self.kraft_version, self.node.history.electors)
        if self._handed_on is not None and not self._handed_on.done():
            state = self.node.state
            if not isinstance(state, Resigned) or not state.unacknowledged:
                self._handed_on.set_result(None)
        self._look_at_known()
        self._tell()

    def _execute_pending(self, values: list[bytes]) -> None:
        ready = self.node.ready()
        try:
            self._execute(ready, values)
        except StorageError as error:
            self._fail(error)

    def _begin(self, ready: Ready, values: list[bytes] | None) -> None:
        """Do the part of a Ready that must be durable first, off the loop, and then the rest."""
        last = next((step for step in ready.log if isinstance(step, SnapshotChunk) and step.last), None)
        election = ready.election
        if election is None and last is None:
            self._execute(ready, values)
            return
        self._busy = True

        def persist() -> Any:
            if election is not None:
                self.storage.write_election_state(election)
            return None if last is None else self.storage.install_snapshot(last)

        def persisted(future: asyncio.Future[Any]) -> None:
            self._busy = False
            error = None if future.cancelled() else future.exception()
            if isinstance(error, SnapshotDropped) and last is not None:
                self._wait_for_room(self._fetch_again, last, partial(self._execute, ready, values))
                return
            if isinstance(error, StorageError) and error.is_full:
                self._wait_for_room(self._begin, ready, values)
                return
            if error is not None and not isinstance(error, CorruptMetadataSnapshot):
                self._fail(error)
                return
            try:
                if last is not None and isinstance(error, CorruptMetadataSnapshot):
                    self._lines.damaged_snapshot(last.id, self.leader_id, error)
                    self.node.snapshot_refused(self._now())
                elif last is not None:
                    self._replica.flush.log_was_cut()
                    self._listeners.log_restarted()
                    size, content = future.result()
                    self._lines.snapshot_installed(last.id)
                    self.node.snapshot_installed(last.id, size, content.voters, content.kraft_version, self._now())
                self._execute(ready, values)
            except Exception as execute_error:  # noqa: BLE001  # as in `_work`
                self._fail(execute_error)
            self._work()

        if last is None:
            self._calls.run_fsync(persist, persisted)
        else:
            # A snapshot may be large.
            self._calls.run(persist, persisted)

    def _execute(self, ready: Ready, values: list[bytes] | None, done: int = 0) -> None:
        """Do the steps of a Ready, without the first `done` steps of its log."""
        storage = self.storage
        for position, step in enumerate(ready.log[done:], done):
            try:
                self._write(step, values)
            except SnapshotDropped:
                self._wait_for_room(self._fetch_again, step, partial(self._execute, ready, values, position + 1))
                return
            except StorageError as error:
                if not error.is_full:
                    raise
                # The written part of an append is cut off again, and a failed truncation has cut nothing.
                self._wait_for_room(self._execute, ready, values, position)
                return
        for outgoing in ready.requests:
            self._send(outgoing)
        for reply in ready.replies:
            self._reply(reply)
        if ready.flush:
            self._replica.flush.begin()
        if ready.high_watermark is not None:
            storage.set_high_watermark(ready.high_watermark)
            self._listeners.advance(ready.high_watermark, self.node.promised)
        if ready.leader is not None:
            self._lines.leader(self.node.state.role, ready.leader)
            self._listeners.leader_changed(ready.leader)

    def _write(self, step: LogStep, values: list[bytes] | None) -> None:
        """Do one step of a Ready's log. Raises StorageError, and SnapshotDropped."""
        if isinstance(step, Append):
            self.storage.append(step.records, self.node.epoch, self._runtime.now_ms())
            self._listeners.appended(step.records, values)
        elif isinstance(step, Truncate):
            self._replica.flush.log_was_cut()
            self.storage.truncate(step.offset)
            self._listeners.truncated(step.offset)
        elif not step.last:
            self.storage.append_chunk(step)

    def _fetch_again(self, step: LogStep, go_on: Callable[[], None]) -> None:
        """Wait for room for a whole snapshot, because one piece had no room. Then fetch it from its beginning."""
        assert isinstance(step, SnapshotChunk)
        if self.storage.has_room_for_snapshot(step.size):
            self.node.snapshot_dropped(self._now())
            go_on()
        else:
            self._lines.no_room_for_snapshot(step.id, step.size, self._config.log_dir)
            self._wait_for_room(self._fetch_again, step, go_on)

    def _wait_for_room(self, step: Callable[..., None], *args: Any) -> None:
        """Wait for room, because the disk is full and a step that must be written does not fit. In that time this
        replica does nothing, as if it were away. Then it tries `step(*args)` again."""
        self._busy = True

        def again() -> None:
            self._busy = False
            if self.failed is not None:
                return
            try:
                step(*args)
            except Exception as error:  # noqa: BLE001  # as in `_work`
                self._fail(error)
            self._work()

        self._replica.room.wait(again)

    def _send(self, outgoing: Outgoing) -> None:
        if self._stopped:
            return

        def answered(future: asyncio.Future[Any]) -> None:
            response = response_to(outgoing, future)
            self._lines.answered(outgoing, response)
            if not self._stopped:
                self._input(
                    lambda: self.node.response(outgoing.correlation_id, outgoing.destination, response, self._now())
                )

        sent = self._peers.send(outgoing.destination, outgoing.request, outgoing.timeout_ms)
        sent.add_done_callback(answered)

    def _reply(self, reply: Reply) -> None:
        answer = self._answers.take(reply.token)
        if answer is None or answer.done():
            return
        fill(reply, self.storage, self.node.log.end_offset)
        answer.set_result(reply.response)

    # The disk

    def _flushed(self, durable: int) -> None:
        try:
            self.storage.note_flushed(durable)
        except StorageError as error:
            self._fail(error)
            return
        self._input(lambda: self.node.flushed(durable, self._now()))

    def _snapshot_written(self, snapshot: OffsetAndEpoch, size: int) -> None:
        def clean() -> None:
            self.storage.note_snapshot(snapshot, size)
            self.node.snapshot_created(snapshot, size)
            start = self.storage.clean(self._runtime.now_ms())
            if start is not None:
                self.node.log_start_moved(start)

        self._listeners.snapshot_taken(snapshot.offset)
        self._input(clean)

    def _fail(self, error: BaseException) -> None:
        if self.failed is not None:
            return
        self.failed = error
        self._lines.stopped(self._config.log_dir, error)
        # Their connections close. The reason was logged above, once.
        self._answers.cancel_all()
        self._inputs.clear()
        self._timer.cancel()
        if self._started is not None:
            self._started.flush.close()
            self._listeners.leader_changed(LeaderChange(None, self.epoch))
            self._runtime.loop.call_soon(self._listeners.tell)
        self._on_failure(error)

    # Time and listeners

    def _tick(self) -> None:
        self._input(lambda: self.node.tick(self._now()))

    def _tell(self) -> None:
        if self._working or self._started is None or self._busy:
            return
        try:
            self._listeners.tell()
        except Exception as error:  # noqa: BLE001  # the log cannot be read, or a listener failed: as in `_work`
            self._fail(error)
            return
        self._snapshots_due.look()

    def _ask_for_snapshot(self) -> None:
        is_idle = self.failed is None and not self._stopped and not self._replica.snapshots.is_under_way
        if self._on_snapshot_due is None or not is_idle:
            return
        # The count begins anew, with or without a snapshot, because a state machine inside a transaction may skip it.
        self._listeners.bytes_since_snapshot = 0
        try:
            self._on_snapshot_due(self)
        except StorageError as error:
            self._fail(error)
        except Exception:
            logger.exception("No snapshot could be taken")


__all__ = ["MetadataListener", "NotLeader", "QuorumConfig", "QuorumDriver"]
