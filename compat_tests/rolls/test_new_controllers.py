"""New controllers take the place of all that a running broker has read of in its properties."""

from __future__ import annotations

import pytest

from compat_tests.mixed_cluster.members import Cluster, Member
from compat_tests.rolls.exchange import exchange
from pykbroker_wire.errors import ErrorCode
from testkit.nodes.wire import Wire, batch


@pytest.mark.slow
def test_a_running_broker_finds_controllers_that_it_was_never_told_of() -> None:
    controllers = {number: Member("pykbroker", "controller") for number in (1, 2, 3)}
    with Cluster({**controllers, 11: Member("pykbroker", "broker")}) as cluster:
        cluster.format()
        cluster.start_all()
        cluster.serving(11)
        topic = cluster.create("written", [11])
        # The active controller goes last: only then has the broker no leader and no bootstrap controller.
        active = cluster.active()
        for number in sorted(controllers, key=lambda number: number == active):
            exchange(cluster, number, 100 + number, "pykbroker", secured=False)
        cluster.serving(11)
        with Wire(cluster.address(11)) as wire:
            assert wire.produce(topic, batch(b"still here"), acks=-1).error_code == ErrorCode.NONE
    assert not cluster.complaints()
