"""The reasons to stop reading, and the pauses of a transport, which come in pairs."""

from __future__ import annotations

from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pykbroker.net.flow_control import FlowControl
from tests.net.fakes import FakeTransport


def begun() -> tuple[FlowControl, FakeTransport]:
    flow, transport = FlowControl(), FakeTransport()
    flow.begin(transport)
    return flow, transport


def test_each_mute_needs_its_unmute() -> None:
    flow, transport = begun()
    flow.mute()
    flow.mute()
    assert not transport.reading
    assert not flow.unmute()
    assert not flow.may_go_on
    assert flow.unmute()
    assert flow.may_go_on
    assert flow.resume()
    assert transport.reading


def test_a_full_transport_and_a_mute_are_two_reasons() -> None:
    flow, transport = begun()
    flow.writing_is_full()
    flow.mute()
    flow.unmute()
    assert not flow.may_go_on
    flow.is_writing_paused = False
    assert flow.may_go_on
    flow.resume()
    assert transport.reading


def test_bytes_that_still_wait_come_before_reading() -> None:
    flow, transport = begun()
    flow.stall()
    assert not flow.resume()
    assert not transport.reading
    flow.is_stalled = False
    assert flow.resume()
    assert transport.reading
    assert not flow.resume()


def test_a_client_that_sends_no_more_is_paused_without_its_transport() -> None:
    flow, transport = begun()
    flow.peer_sends_more = False
    flow.mute()
    assert flow.is_reading_paused
    assert transport.reading
    flow.unmute()
    assert flow.resume()
    assert transport.reading


def test_nothing_is_paused_before_the_transport_and_after_the_end() -> None:
    flow, transport = FlowControl(), FakeTransport()
    flow.mute()
    assert not flow.is_reading_paused
    flow.unmute()
    flow.begin(transport)
    flow.mute()
    flow.end()
    flow.unmute()
    assert not flow.may_go_on
    assert not flow.resume()
    assert not transport.reading


class FlowMachine(RuleBasedStateMachine):
    """A connection that resumes whenever a reason ends, in any order of reasons. FakeTransport checks the pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.flow, self.transport = begun()

    def go_on(self) -> None:
        if self.flow.may_go_on:
            self.flow.is_stalled = False
            self.flow.resume()

    @rule()
    def mute(self) -> None:
        self.flow.mute()

    @rule()
    @precondition(lambda self: self.flow.mutes)
    def unmute(self) -> None:
        if self.flow.unmute():
            self.go_on()

    @rule()
    def fill(self) -> None:
        self.flow.writing_is_full()

    @rule()
    @precondition(lambda self: self.flow.is_writing_paused)
    def drain(self) -> None:
        self.flow.is_writing_paused = False
        self.go_on()

    @rule()
    @precondition(lambda self: self.flow.mutes or self.flow.is_writing_paused)
    def stall(self) -> None:
        self.flow.stall()

    @invariant()
    def reads_unless_there_is_a_reason(self) -> None:
        assert self.transport.reading == (not self.flow.mutes and not self.flow.is_writing_paused)


TestFlowMachine = FlowMachine.TestCase
