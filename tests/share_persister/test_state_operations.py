"""The life of an operation as a table, its rests, and its size."""

from __future__ import annotations

import pytest

from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
from pykbroker.share_persister.persister_machine import StateRequest
from pykbroker.share_persister.state_operations import (
    STAGES,
    Stage,
    StateCall,
    StateOperation,
)
from pykbroker.share_persister.state_requests import state_request
from tests.share_persister.coordinators import batch


def test_a_stage_that_the_table_does_not_have_raises() -> None:
    operation = StateOperation(StateCall.READ, SharePartitionKey("g", bytes(16), 0))
    with pytest.raises(ValueError, match="made cannot become sent"):
        operation.become(Stage.SENT)
    operation.become(Stage.QUEUED)
    operation.become(Stage.SENT)
    operation.become(Stage.ENDED)
    assert STAGES.keys() == set(Stage)
    assert not STAGES[Stage.ENDED]


@pytest.mark.parametrize("call", StateCall)
@pytest.mark.parametrize("batches", [0, 1, 1_000])
def test_the_size_is_an_estimate_from_above(call: StateCall, batches: int) -> None:
    operations = [
        StateOperation(
            call,
            SharePartitionKey("g", bytes([each]) * 16, 2**31 - 1),
            batches=[batch(0, 9)] * batches if call is StateCall.WRITE else [],
        )
        for each in range(200)
    ]
    request = state_request(StateRequest(1, call, "g", operations))
    assert len(b"".join(request.encode(request.MAX_VERSION))) <= sum(each.size for each in operations)
