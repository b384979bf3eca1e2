"""Loads the state of a share partition for its leader: reads it from the share coordinator, and finds the start of a
group that has none yet.

Responsible for one load. Not responsible for its use (share_partition_leader.py), nor for the search of a start
(start_offsets.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from pykbroker.net.promise import Promise
from pykbroker.share_leaders.leader_states import error_for_clients
from pykbroker.share_partitions.delivery_states import DeliveryRange
from pykbroker.share_partitions.share_partition import SharePartition, UnusableState
from pykbroker_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pykbroker.share_persister.state_operations import ShareStateAnswer

_NO_START: Final = -1


class LoadedState(NamedTuple):
    """`is_start_stored` is False if the start was found just now, so that the share coordinator does not have it.
    `batch_sizes` are the numbers of offsets of the state's batches."""

    machine: SharePartition
    state_epoch: int
    is_start_stored: bool
    batch_sizes: list[int]


class StateLoad:
    """Call `begin` once, and `cancel` if the state is no longer wanted."""

    __slots__ = ("_answer", "_find_start", "_loaded", "_step")

    def __init__(self, find_start: Callable[[], Promise], loaded: Callable[[LoadedState | KafkaError], object]) -> None:
        """`find_start` returns a promise of the offset at which the group starts; it is called if the share coordinator
        has none. `loaded` is called once, with the state or with the error for clients."""
        self._find_start = find_start
        self._loaded = loaded
        self._answer: ShareStateAnswer | None = None
        #: the step that is under way
        self._step: Promise | None = None

    def begin(self, reading: Promise) -> None:
        """Go on with what the share coordinator answers: `reading` is a promise of the persister."""
        self._step = reading
        reading.add_done_callback(self._read)

    def cancel(self) -> None:
        """Give up. `loaded` is not called any more."""
        step, self._step = self._step, None
        if step is not None:
            step.cancel()

    def _read(self, reading: Promise) -> None:
        answer: ShareStateAnswer = reading.result()
        self._answer = answer
        error = error_for_clients(answer.error)
        if error is not ErrorCode.NONE:
            self._end(KafkaError(error, answer.message or answer.error.message))
        elif answer.start_offset == _NO_START:
            self._step = self._find_start()
            self._step.add_done_callback(self._found_start)
        else:
            self._load(answer, answer.start_offset)

    def _found_start(self, search: Promise) -> None:
        error = search.exception()
        assert self._answer is not None
        if error is None:
            self._load(self._answer, search.result())
        elif isinstance(error, KafkaError):
            self._end(error)
        else:
            self._end(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"its start offset could not be found: {error!r}"))

    def _load(self, answer: ShareStateAnswer, start: int) -> None:
        ranges = [
            DeliveryRange(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in answer.batches
        ]
        try:
            machine = SharePartition.load(start, ranges)
        except UnusableState as error:
            self._end(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"its state is unusable: {error}"))
            return
        sizes = [each.last - each.first + 1 for each in ranges]
        self._end(LoadedState(machine, answer.state_epoch, answer.start_offset != _NO_START, sizes))

    def _end(self, found: LoadedState | KafkaError) -> None:
        self._step = None
        self._loaded(found)
