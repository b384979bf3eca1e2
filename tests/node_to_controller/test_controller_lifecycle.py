"""A controller's registration while the metadata log grows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pykbroker.metadata.image import Endpoint
from pykbroker.metadata.loader import MetadataLoader
from pykbroker.metadata.records import encode_record
from pykbroker.node_to_controller.controller_lifecycle import ControllerRegistration
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.controller_registration import ControllerRegistrationResponse
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored.metadata import FeatureLevelRecord, NoOpRecord, RegisterControllerRecord
from tests.coordinator.fakes import Loop, as_loop
from tests.node_to_controller.fakes import FakeChannel

INCARNATION = b"i" * 16
REFUSED = ControllerRegistrationResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)


class Standby:
    """Controller 2 while 1 leads."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.channel = FakeChannel(self.loop)
        self.loader = MetadataLoader()
        runtime: Any = SimpleNamespace(loop=as_loop(self.loop))
        self.registration = ControllerRegistration(
            runtime=runtime, channel=self.channel, metadata=self.loader, node_id=2, incarnation_id=INCARNATION
        )
        self.registration.start([Endpoint("CONTROLLER", "localhost", 9103, 0)])
        self.commit(FeatureLevelRecord(name="metadata.version", feature_level=30))

    def commit(self, record: TopLevel) -> None:
        self.loader.handle_commit(self.loader.last_offset + 1, 1, 0, [encode_record(record, 30)])

    @property
    def sent(self) -> int:
        return len(self.channel.requests)


def test_a_standby_controller_registers_and_once() -> None:
    standby = Standby()
    standby.loop.advance(10)
    assert standby.sent == 0
    standby.loader.handle_leader(1, 1)
    standby.loop.advance(0)
    assert standby.sent == 1
    standby.channel.answer(ControllerRegistrationResponse())
    standby.commit(RegisterControllerRecord(controller_id=2, incarnation_id=INCARNATION))
    standby.loop.advance(60)
    assert standby.sent == 1
    # A new leader has the record as well.
    standby.loader.handle_leader(3, 2)
    standby.loop.advance(60)
    assert standby.sent == 1


def test_an_acknowledged_registration_that_got_lost_is_said_again() -> None:
    standby = Standby()
    standby.loader.handle_leader(1, 1)
    standby.loop.advance(0)
    standby.channel.answer(ControllerRegistrationResponse())
    standby.loop.advance(4.9)
    assert standby.sent == 1
    standby.loop.advance(0.1)
    assert standby.sent == 2


def test_records_do_not_cut_the_pause_after_a_refusal_short() -> None:
    """Each record (a NoOp comes every 500 ms) cancelled the timer, and the registration went out again."""
    standby = Standby()
    standby.loader.handle_leader(1, 1)
    standby.loop.advance(0)
    for seconds in (0.1, 0.2, 0.4, 0.8):
        sent = standby.sent
        standby.channel.answer(REFUSED)
        for _ in range(9):
            standby.loop.advance(seconds / 10)
            standby.commit(NoOpRecord())
        assert standby.sent == sent
        standby.loop.advance(seconds / 9)
        assert standby.sent == sent + 1


def test_two_processes_with_one_node_id_do_not_register_in_turns(caplog: pytest.LogCaptureFixture) -> None:
    """Each registration would be the reason for the other's, and each a record of the metadata log."""
    standby = Standby()
    # A registration of an earlier life is no reason to be silent.
    standby.commit(RegisterControllerRecord(controller_id=2, incarnation_id=b"e" * 16))
    standby.loader.handle_leader(1, 1)
    standby.loop.advance(0)
    assert standby.sent == 1
    standby.channel.answer(ControllerRegistrationResponse())
    standby.commit(RegisterControllerRecord(controller_id=2, incarnation_id=INCARNATION))
    standby.loop.advance(10)
    for life in (b"o", b"p"):
        standby.commit(RegisterControllerRecord(controller_id=2, incarnation_id=life * 16))
        standby.loop.advance(60)
    assert standby.sent == 1
    said = [
        record.getMessage() for record in caplog.records if "two nodes have the same node.id" in record.getMessage()
    ]
    assert len(said) == 1
