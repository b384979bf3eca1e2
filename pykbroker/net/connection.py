"""One client connection: bytes in, frames to the dispatcher, ordered responses out.

Responsible for framing, and for joining the parts of one connection: its receive buffer (receive_buffer.py), its
replies in order (replies.py), its flow control (flow_control.py) and its queue of regions (sending.py). Applies the
bounds: unanswered requests, unsent bytes, frame size, the time a frame may take to arrive. Every failure of a
connection is one log line and one end. Not responsible for the meaning of a request: the listener's owner passes
`dispatch`.

Invariants
* A frame is a view of receive memory and is valid only during `dispatch`; code that keeps it longer copies it.
* Only a connection that is READY dispatches (connection_state.py). On a listener that authenticates, frames before that
  go to sasl/sasl_connection.py.
* While a bound is exceeded, nothing is read or dispatched; bytes that were received stay in this connection's buffer.
* One turn of the loop dispatches the frames of one connection for TURN_SECONDS at most, plus its last frame.

Connections share the listener's receive buffer: between two turns of the loop only a connection in the middle of a
frame owns memory.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, cast

from pykbroker.net.connection_state import ACCEPTED, ConnectionState, End, StatefulConnection
from pykbroker.net.flow_control import FlowControl
from pykbroker.net.foreign_protocols import why_no_size
from pykbroker.net.receive_buffer import KEEP_BUFFER_BYTES, SIZE, ReceiveBuffer
from pykbroker.net.replies import AnswerBuffers, FutureAnswer, Pending, Replies
from pykbroker.net.sending import Outlet, Sendable, SendQueue, SocketOutlet, write_at_once
from pykbroker.security.peer_session import ANONYMOUS, PeerSession
from pykbroker_log.os_disk.files import SENDS_FILES

if TYPE_CHECKING:
    from pykbroker.net.connection_home import ConnectionHome

logger = logging.getLogger(__name__)

#: Responses to pipelined requests leave in groups of this many buffers, or of this many bytes and one response.
WRITE_BUFFERS = 24
WRITE_BYTES = 256 * 1024
#: The most time for the frames of one connection in one turn of the loop. Its other frames wait for the next turn.
TURN_SECONDS = 0.005
#: The time to read the responses for the client of a closed connection, and for a client that has ended its sending.
DRAIN_SECONDS = 5.0
_NO_MORE = "the client sends no more"
#: Set by tests: a request's bytes are overwritten after its dispatch, which exposes code that keeps a view of them.
POISON_RECEIVED = False


class CloseConnection(Exception):
    """Ends the connection; the text is the reason in its one log line."""


DispatchFrame = Callable[["Connection", memoryview], "AnswerBuffers | Pending | None"]
_numbers = count(1)


class Connection(StatefulConnection, asyncio.BufferedProtocol):
    """The server side of one connection. The listener creates it, and the transport calls it."""

    __slots__ = (
        "_dispatch",
        "_flow",
        "_flush_scheduled",
        "_received",
        "_replies",
        "_sender",
        "client_host",
        "client_port",
        "client_software_name",
        "client_software_version",
        "connection_number",
        "last_active",
        "listener",
        "session",
        "takes_regions",
        "transport",
    )

    def __init__(self, listener: ConnectionHome[Connection]) -> None:
        super().__init__(ACCEPTED)
        self.listener = listener
        #: the function that gets the frames
        self._dispatch: DispatchFrame = listener.dispatch
        self.transport: asyncio.Transport | None = None
        self.connection_number: int | None = next(_numbers)
        self.session: PeerSession = ANONYMOUS
        self.client_host = ""
        self.client_port = 0
        self.client_software_name = "unknown"
        self.client_software_version = "unknown"
        self.last_active = listener.loop.time()
        #: True if responses may have regions of segment files: the transport is a socket, or TLS over one
        self.takes_regions = False
        #: None until the first region is sent
        self._sender: SendQueue | None = None
        self._received = ReceiveBuffer(listener.limits.frame_bytes, self.last_active)
        self._replies = Replies()
        self._flow = FlowControl()
        #: True while a call of `_flush` is scheduled
        self._flush_scheduled = False

    def __repr__(self) -> str:
        return f"{self.client_host}:{self.client_port} on {self.listener.name}"

    @property
    def listener_name(self) -> str:
        return self.listener.name

    @property
    def security_protocol(self) -> str:
        return self.listener.security_protocol

    # -- transport callbacks ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        # This comes before `admit`, which may mute the connection and unmute it at once.
        self._flow.begin(self.transport)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple) and len(peer) >= 2:
            self.client_host, self.client_port = str(peer[0]), int(peer[1])
        limits = self.listener.limits
        if limits.send_buffer_bytes > 0 or limits.receive_buffer_bytes > 0:
            _set_buffers(transport, limits.send_buffer_bytes, limits.receive_buffer_bytes)
        self.takes_regions = SENDS_FILES and transport.get_extra_info("socket") is not None
        self.transport.set_write_buffer_limits(high=limits.unsent_bytes)
        if self.listener.tls is None:
            self._take_frames()
        else:
            self.become(ConnectionState.HANDSHAKING)
        refused = self.listener.admit(self)
        if refused:
            self.close(f"refused: {refused}")
            self.transport.abort()
        elif self.listener.tls is None and self.listener.authentication is None and not self._identify(None):
            self.listener.metrics.refused.value += 1
            self.transport.abort()

    def secured(self, certificate: bytes | None) -> None:
        """The TLS handshake is done; the client has proved `certificate` (DER), which is None if it has sent none."""
        metrics = self.listener.metrics
        if self.listener.authentication is None:
            if not self._identify(certificate):
                metrics.refused.value += 1
                return
            metrics.authenticated.value += 1
            metrics.without_renewal.value += 1
        self._take_frames()

    def _identify(self, certificate: bytes | None) -> bool:
        """Set the principal of a client without SASL. Return False if it has none, after closing the connection."""
        tls, principals = self.listener.tls, self.listener.principals
        try:
            if principals is not None:
                self.session = principals.session(self, certificate=certificate)
            elif tls is not None:
                self.session = tls.session_of(certificate)
        except ValueError as error:
            self.close(f"the client has no principal: {error}")
            return False
        return True

    def insecure(self, reason: str) -> None:
        """TLS with this client failed, or has ended."""
        if self.state is ConnectionState.HANDSHAKING:
            self.listener.metrics.refused.value += 1
        self._close_for_mistake(reason, reason)

    def _take_frames(self) -> None:
        """Accept requests, after authentication if the listener asks for it."""
        authentication = self.listener.authentication
        if authentication is None:
            self.become(ConnectionState.READY)
        else:
            authentication.begin(self)

    def frames_go_to(self, dispatch: DispatchFrame, frame_bytes: int) -> None:
        """Pass the following frames to `dispatch`. Each may have up to `frame_bytes` bytes."""
        self._dispatch = dispatch
        self._received.frame_bytes = frame_bytes

    def connection_lost(self, exc: BaseException | None) -> None:
        if self.end is None:
            self._flow.end()
            self.begin_end(End(str(exc) if exc is not None else "the client closed it", by_peer=True))
        self.become(ConnectionState.CLOSED)
        self._release_buffer()
        self.listener.forget(self)
        if self._sender is not None:
            self._sender.clear()
        self._replies.cancel()

    def get_buffer(self, sizehint: int) -> memoryview:
        received = self._received
        view = received.view
        if view is None:
            return self.listener.receive_view
        if received.filled == len(view):
            self.listener.memory.taken(received.grow(), self)
            view = received.view
            assert view is not None
        return view[received.filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self.end is not None:
            return
        self.last_active = now = self.listener.loop.time()
        view, end = self._received.add(nbytes, self.listener.receive_view, now)
        self._consume(view, end)

    def eof_received(self) -> bool | None:
        """The client sends no more, or is gone while its request still waits. It has DRAIN_SECONDS for its
        responses."""
        flow = self._flow
        flow.peer_sends_more = False
        if self.end is None and self._received.filled and not flow.is_reading_paused:
            logger.info("Connection from %s: closed by the client in the middle of a request", self)
        is_owed = bool(self._replies) or flow.is_reading_paused
        if not is_owed and (self._sender is None or not self._sender.is_waiting):
            # The transport closes after it has sent its bytes.
            return None
        if self.end is None:
            self.peer_has_finished(End(_NO_MORE, by_peer=True))
            self.listener.loop.call_later(DRAIN_SECONDS, self.close, _NO_MORE, logging.DEBUG)
            self._end_if_answered()
        return True

    def pause_writing(self) -> None:
        if self._sender is None or not self._sender.is_waiting:
            self._flow.writing_is_full()

    def resume_writing(self) -> None:
        if self._sender is not None:
            self._sender.pump()
            if self._sender.unsent_bytes > self.listener.limits.unsent_bytes:
                return
        self._flow.is_writing_paused = False
        self._resume()

    # -- frames -------------------------------------------------------------------------------------------------------

    def _consume(self, view: memoryview, end: int) -> None:
        """Dispatch the complete frames in view[:end] for which this turn has time, and keep the rest."""
        position = 0
        received, flow, replies = self._received, self._flow, self._replies
        # The first frame of a turn needs no look at the clock.
        is_first = received.turn_began == self.last_active
        out: list[bytes | bytearray | memoryview] = []
        out_bytes = 0
        try:
            while end - position >= 4:
                if self.end is not None:
                    # Another part has closed the connection in the meantime.
                    return
                if is_first:
                    is_first = False
                elif self.listener.loop.time() - received.turn_began > TURN_SECONDS and not flow.mutes:
                    # The rest of the node gets its turn now. The next requests of this connection keep their place.
                    self.mute()
                    self.listener.loop.call_soon(self.unmute)
                if flow.is_writing_paused or flow.mutes or (replies and replies.is_behind(self.listener.limits)):
                    flow.stall()
                    break
                (size,) = SIZE.unpack_from(view, position)
                if size <= 0 or size > received.frame_bytes:
                    self._write(out)
                    kind, why = why_no_size(size, received.frame_bytes, self.state, self.security_protocol)
                    self._close_for_mistake(kind, why)
                    return
                stop = position + 4 + size
                if stop > end:
                    break
                answer = self._dispatch(self, view[position + 4 : stop])
                if POISON_RECEIVED:
                    view[position + 4 : stop] = b"\xa5" * size
                position = stop
                if answer is None:
                    continue
                if isinstance(answer, list):
                    if replies:
                        replies.fill(replies.open(), answer)
                    else:
                        out += answer
                        out_bytes += len(answer[0]) if len(answer) == 1 else sum(map(len, answer))
                        if out_bytes > WRITE_BYTES or len(out) >= WRITE_BUFFERS:
                            # Do not write all at the end: after a large response the transport may ask for a pause, and
                            # a client that pipelines can continue while its other frames are dispatched.
                            self._write(out)
                            out, out_bytes = [], 0
                else:
                    pending = cast(Pending, answer)
                    replies.park(pending)
                    pending.future.add_done_callback(self._finished)
        except CloseConnection as reason:
            self._write(out)
            self.close(str(reason))
            return
        except Exception:
            logger.exception("Connection from %s: a request failed", self)
            self._write(out)
            self.close("internal error")
            return
        if out:
            self._write(out)
        if position != end:
            if taken := received.keep(view, position, end, self.last_active):
                self.listener.memory.taken(taken, self)
        elif received.view is not None:
            received.filled = 0
            if len(received.view) > KEEP_BUFFER_BYTES:
                self._release_buffer()

    def _close_for_mistake(self, kind: str, reason: str) -> None:
        """End the connection of a client that may repeat its mistake: a line a minute for each address and kind."""
        more = self.listener.lines.take(f"{self.client_host} {kind}")
        self.close(f"{reason}{more or ''}", logging.DEBUG if more is None else logging.INFO)

    def _release_buffer(self) -> None:
        if freed := self._received.release():
            self.listener.memory.given_back(freed, self)

    def tidy(self, now: float) -> None:
        """End the connection if it is idle or stuck, and free an idle buffer. The listener calls it at intervals."""
        if self.state is ConnectionState.CLOSING:
            if self.transport is not None and now - self.last_active > DRAIN_SECONDS:
                # The client does not read the rest of its responses, and the transport would wait for it without end.
                self.transport.abort()
            return
        limits, received, is_paused = self.listener.limits, self._received, self._flow.is_reading_paused
        if self.state is ConnectionState.HANDSHAKING:
            # A connection that waits for its admission is not late.
            if not is_paused and now - received.frame_began > limits.frame_seconds:
                self.close(f"the TLS handshake was not done within {limits.frame_seconds:g} s")
            return
        if not is_paused and received.is_late(now, limits.frame_seconds):
            self.close(f"a request did not arrive within {limits.frame_seconds:g} s")
        elif not received.filled and now - self.last_active > 5.0:
            self._release_buffer()
        is_idle = limits.idle_seconds and now - self.last_active > limits.idle_seconds
        if is_idle and not self._replies and not self._flow.mutes:
            self.close(f"idle for {limits.idle_seconds:g} s", logging.DEBUG)

    # -- answers ------------------------------------------------------------------------------------------------------

    def _finished(self, future: FutureAnswer) -> None:
        if self.end is not None:
            self._replies.drop(future)
            return
        try:
            self._replies.finish(future)
        except asyncio.CancelledError:
            self.close("a request was cancelled: the node is stopping")
            return
        except CloseConnection as reason:
            self.close(str(reason))
            return
        except Exception:
            logger.exception("Connection from %s: a handler failed", self)
            self.close("internal error")
            return
        if len(self._replies) == 1 and not self._flow.is_reading_paused:
            # No other request is unanswered, and none waits to be dispatched.
            self._flush()
        elif not self._flush_scheduled:
            # One write for all responses that are finished in this turn of the loop.
            self._flush_scheduled = True
            self.listener.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self.end is not None:
            return
        out: list[bytes | bytearray | memoryview] = []
        self._replies.take(out)
        if out:
            self._write(out)
        flow = self._flow
        if flow.is_reading_paused:
            self._resume()
        if not flow.peer_sends_more:
            self._end_if_answered()

    def _write(self, out: list[bytes | bytearray | memoryview]) -> None:
        transport = self.transport
        if transport is None or not out or self.end is not None:
            return
        sender, listener = self._sender, self.listener
        if sender is None or not sender.is_waiting:
            if len(out) == 1:
                transport.write(out[0])
                return
            if write_at_once(transport, out, takes_regions=self.takes_regions):
                return
            if sender is None:
                sender = self._sender = SendQueue(
                    transport,
                    # With TLS the transport is a TlsLayer.
                    SocketOutlet(transport) if listener.tls is None else cast(Outlet, transport),
                    listener.loop,
                    high=listener.limits.unsent_bytes,
                    load=listener.cold_reads.load,
                    progressed=self._progressed,
                    failed=self._cannot_send,
                )
        sender.add(cast("list[Sendable]", out))
        if sender.unsent_bytes > listener.limits.unsent_bytes:
            self._flow.writing_is_full()

    def _progressed(self) -> None:
        sender = self._sender
        assert sender is not None
        self.last_active = self.listener.loop.time()
        if self.end is not None:
            if not sender.is_waiting and self.transport is not None:
                self.transport.close()
        elif self._flow.is_writing_paused and sender.unsent_bytes <= self.listener.limits.unsent_bytes:
            self._flow.is_writing_paused = False
            self._resume()

    def _cannot_send(self, reason: str) -> None:
        """End the connection in the middle of a response. No other bytes can be sent to this client after a broken
        response."""
        self.close(reason)
        if self.transport is not None:
            self.transport.abort()

    # -- flow control and end -----------------------------------------------------------------------------------------

    def _resume(self) -> None:
        """Continue with the received bytes, then with reading, once every bound allows it."""
        flow = self._flow
        if not flow.may_go_on or self._replies.is_behind(self.listener.limits):
            return
        flow.is_stalled = False
        # The time of idleness begins again, because nothing could arrive while reading was paused.
        self.last_active = now = self.listener.loop.time()
        waiting = self._received.take_again(now)
        if waiting is not None:
            self._consume(*waiting)
        if flow.resume() and not flow.peer_sends_more:
            self._end_if_answered()

    def _end_if_answered(self) -> None:
        """Close the connection of a client that has ended its sending, unless a response is still due to it."""
        if self.end is None and not self._replies and not self._flow.is_reading_paused:
            self.close(_NO_MORE, logging.DEBUG)

    def mute(self) -> None:
        """Stop reading and dispatching (for quotas, admission, the bound on memory of incomplete requests, the order of
        appends, and the end of a turn). Each caller calls `unmute` as often as `mute`."""
        self._flow.mute()

    def unmute(self) -> None:
        """Undo one `mute`; the last `unmute` lets the connection continue."""
        if self._flow.unmute():
            self._resume()

    def close(self, reason: str, level: int = logging.INFO) -> None:
        """End the connection; `reason` is its one log line."""
        if self.end is not None:
            return
        # Responses that are finished are still sent, if the client reads them.
        out: list[bytes | bytearray | memoryview] = []
        self._replies.take(out)
        self._write(out)
        if self.end is not None:
            # TLS could not encrypt the responses, which has ended the connection.
            return
        self._flow.end()
        self.begin_end(End(reason, by_peer=False))
        self.last_active = self.listener.loop.time()
        logger.log(level, "Connection from %s: closed: %s", self, reason)
        if self.transport is not None and (self._sender is None or not self._sender.is_waiting):
            self.transport.close()


def _set_buffers(transport: asyncio.BaseTransport, send_bytes: int, receive_bytes: int) -> None:
    sock: socket.socket | None = transport.get_extra_info("socket")
    if sock is not None:
        if send_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
        if receive_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
