"""The decision of an operation of the controller: records to append, and the answer once they are committed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.primitives import TopLevel

T = TypeVar("T")

#: The most records of a user's operation: one batch, one transaction of the log.
MAX_RECORDS_PER_USER_OPERATION = 10_000


class Verdict(NamedTuple):
    """The outcome for one item of a request: a code, and a message that is null on success."""

    code: ErrorCode
    message: str | None

    @property
    def failed(self) -> bool:
        return self.code is not ErrorCode.NONE


OK = Verdict(ErrorCode.NONE, None)


def failure(code: ErrorCode, message: str | None = None) -> Verdict:
    """Return a verdict with the message, or with the text of the code."""
    return Verdict(code, code.message if message is None else message)


def verdict_of(error: KafkaError) -> Verdict:
    """Return the verdict on one item. As in Apache Kafka, a message that equals the text of the code is left out."""
    return Verdict(error.code, None if error.message == error.code.message else error.message)


@dataclass(slots=True)
class Result(Generic[T]):
    """`records` become batches of at most MAX_RECORDS_PER_BATCH. Without records the operation was a read.

    `appended` makes changes in memory that are in no record. It is called when all records are in the log. It is not
    called if the log refuses them, because the disk is full.
    """

    response: T
    records: list[TopLevel] = field(default_factory=list)
    appended: Callable[[], None] = lambda: None


class TooManyRecords(KafkaError):
    """A user's operation does not fit into a batch, so no part of it is done."""


class RecordList(list[TopLevel]):
    """Records of a user's operation. It refuses records that make it too large, as Apache Kafka's bounded list does."""

    def check_room(self, more: int) -> None:
        if len(self) + more > MAX_RECORDS_PER_USER_OPERATION:
            raise TooManyRecords(
                ErrorCode.POLICY_VIOLATION,
                f"Unable to perform excessively large batch operation: it would need more than "
                f"{MAX_RECORDS_PER_USER_OPERATION} metadata records.",
            )
