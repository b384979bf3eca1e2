"""Producer ids, handed out to brokers in blocks (KIP-730)."""

from __future__ import annotations

from typing import NamedTuple

from pykbroker.controller.result import Result
from pykbroker.controller.state import ControllerState
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.stored.metadata import ProducerIdsRecord

BLOCK_SIZE = 1_000
_LAST_ID = 2**63 - 1


class Block(NamedTuple):
    first: int
    size: int


def allocate_producer_ids(state: ControllerState, broker_id: int, broker_epoch: int) -> Result[Block]:
    state.check_broker_epoch(broker_id, broker_epoch)
    first = max(state.image.producer_ids_next, 0)
    if first > _LAST_ID - (BLOCK_SIZE - 1):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids are used up.")
    record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + BLOCK_SIZE)
    return Result(Block(first, BLOCK_SIZE), [record])
