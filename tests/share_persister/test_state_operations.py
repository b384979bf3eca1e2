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
    Tries,
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


def test_the_rests_after_the_quick_ones_are_apache_kafkas() -> None:
    tries = Tries()
    rests = [tries.rest(may_be_quick=True) for _ in range(9)]
    assert rests == [0.05, 0.1, 0.2, 0.4, 2, 4, 8, 16, None]
    assert [Tries(failures=each).rest(may_be_quick=False) for each in range(5)] == [2, 4, 8, 16, None]


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
