"""Transactional batches that wait while their transaction is verified with its coordinator (KIP-890).

A transaction must not begin in a log unless its coordinator knows that the log takes part, or it would never end. So
the leader first asks the coordinator. A guard stands for that request: the batch is appended only if its guard is
still the current one. A marker that arrives in the meantime drops the guard, and the batch may not be appended.

Responsible for the guards and for the lowest sequence number of the batches of each guard. Not responsible for asking
the coordinator, nor for which producer has an open transaction already (producers.py).

Invariants: at most one guard per producer id; a guard that was dropped never becomes current again.
"""

from __future__ import annotations

from pykbroker_log.jumps import NO_JUMPS, Jumps
from pykbroker_wire.errors import ErrorCode, KafkaError


class _Verification:
    __slots__ = ("begun_ms", "epoch", "guard", "lowest_sequence", "supports_epoch_bump")

    def __init__(self, epoch: int, sequence: int, supports_epoch_bump: bool, now_ms: int) -> None:
        self.guard = object()
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.supports_epoch_bump = supports_epoch_bump
        self.begun_ms = now_ms


class Verifications:
    __slots__ = ("pending",)

    def __init__(self) -> None:
        #: by producer id; always the same dict
        self.pending: dict[int, _Verification] = {}

    def __len__(self) -> int:
        return len(self.pending)

    def begin(self, producer_id: int, epoch: int, sequence: int, *, supports_epoch_bump: bool, now_ms: int) -> object:
        """Return the guard to append with. A second batch that begins before the guard is dropped shares it."""
        pending = self.pending.get(producer_id)
        if pending is None:
            pending = _Verification(epoch, sequence, supports_epoch_bump, now_ms)
            self.pending[producer_id] = pending
        elif epoch == pending.epoch:
            pending.lowest_sequence = min(pending.lowest_sequence, sequence)
        elif epoch > pending.epoch:
            pending.epoch, pending.lowest_sequence = epoch, sequence
        return pending.guard

    def is_current(self, producer_id: int, guard: object | None) -> bool:
        pending = self.pending.get(producer_id)
        return pending is not None and guard is pending.guard

    def check_sequence(self, producer_id: int, first_sequence: int, *, knows_batches: bool) -> None:
        """Keep the order of batches that were sent together. If the verification of the first fails and the client must
        send it again, the later ones must not be written before it. Raises OUT_OF_ORDER_SEQUENCE_NUMBER."""
        pending = self.pending.get(producer_id)
        if pending is None:
            return
        if pending.supports_epoch_bump and first_sequence and not knows_batches:
            # transaction.version 2: every transaction has an epoch of its own, so its first batch is number 0.
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} begins with sequence number {first_sequence}, not 0",
            )
        if first_sequence > pending.lowest_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} sent sequence number {first_sequence} before number {pending.lowest_sequence} "
                "was written",
            )

    def drop(self, producer_id: int) -> None:
        self.pending.pop(producer_id, None)

    def remove_expired(self, now_ms: int, expiration_ms: int, jumps: Jumps = NO_JUMPS) -> None:
        """Remove guards that were never used for an append."""
        for producer_id, pending in list(self.pending.items()):
            if jumps.age_ms(now_ms, pending.begun_ms) >= expiration_ms:
                del self.pending[producer_id]

    def clear(self) -> None:
        self.pending.clear()
