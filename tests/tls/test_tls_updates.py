"""TLS records without data, from a client that updates its keys again and again, do not block the node."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import cast

import pytest
import uvloop

from pykbroker.net.connection_home import Limits
from pykbroker.net.listener import Listener
from pykbroker.runtime import OsRuntime
from pykbroker.tls import tls_records
from pykbroker.tls.handshakes import Handshakes
from pykbroker.tls.principal_mapping import PrincipalMapper
from pykbroker.tls.tls_listener import TlsListener
from pykbroker.tls.tls_records import FIRST_WITHOUT_DATA
from pykbroker.tls.tls_server import TlsServer
from testkit.certificates import client_context
from tests.net.fakes import frame
from tests.tls.key_updates import ClientRecords, logging_keys
from tests.tls.test_tls_layer import Above, Pair, server_context

REASON = "it sends TLS records that have no data, and too many of them"


class Updating(Pair):
    """A pair whose client makes its records itself once the handshake is done."""

    def __init__(self, folder: Path) -> None:
        super().__init__(logging_keys(client_context(folder), folder / "keys"), server_context())
        self.handshake()
        self.records = ClientRecords(cipher_of(self.peer), (folder / "keys").read_text())

    @property
    def received(self) -> bytes:
        return bytes(cast(Above, self.above).received)

    @property
    def reasons(self) -> list[str]:
        return cast(Above, self.above).reasons


def cipher_of(tls: ssl.SSLObject) -> str:
    cipher = tls.cipher()
    assert cipher is not None
    return cipher[0]


@pytest.mark.parametrize("requested", [False, True])
@pytest.mark.parametrize("cut", [65536, 27, 10])
def test_many_updates_of_keys_end_the_connection(tmp_path: Path, requested: bool, cut: int) -> None:
    pair = Updating(tmp_path)
    updates = [pair.records.update(requested=requested) for _ in range(2 * FIRST_WITHOUT_DATA)]
    pair.feed(b"".join(updates), lambda: cut)
    assert pair.reasons == [REASON]
    assert pair.below.closed


def test_some_updates_between_data_lose_nothing(tmp_path: Path) -> None:
    pair = Updating(tmp_path)
    sent = [b"before"] + [b"%d" % number for number in range(FIRST_WITHOUT_DATA)]
    stream = b"".join(pair.records.data(each) + pair.records.update(requested=True) for each in sent[:-1])
    pair.feed(stream + pair.records.data(sent[-1]), lambda: 1000)
    assert pair.received == b"".join(sent)
    assert not pair.reasons
    # Updates that asked for it were answered: OpenSSL reads the bytes with the new keys.
    pair.layer.write(b"answer")
    assert pair.receive() == b"answer"


def test_data_allows_more_updates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Updating(tmp_path)
    for _ in range(3 * FIRST_WITHOUT_DATA):
        pair.feed(pair.records.update() + pair.records.data(b"x"))
    assert not pair.reasons


def test_no_amount_of_data_allows_updates_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_records, "MOST_SAVED", 20)
    pair = Updating(tmp_path)
    pair.feed(b"".join(pair.records.data(b"x") for _ in range(100)))
    pair.feed(b"".join(pair.records.update() for _ in range(20)))
    assert not pair.reasons
    pair.feed(pair.records.update())
    assert pair.reasons == [REASON]


def test_a_consumer_may_update_its_keys_for_each_record_that_it_receives(tmp_path: Path) -> None:
    """Java does so from the record that reached the limit of a key until the response to its first update."""
    pair = Updating(tmp_path)
    pair.layer.write(bytes(200 * 16384))
    assert len(pair.receive()) == 200 * 16384
    for _ in range(200):
        pair.feed(pair.records.update(requested=True))
    assert not pair.reasons


def test_updates_behind_the_handshake_in_one_piece_are_counted_too(tmp_path: Path) -> None:
    pair = Pair(logging_keys(client_context(tmp_path), tmp_path / "keys"), server_context())
    with pytest.raises(ssl.SSLWantReadError):
        pair.peer.do_handshake()
    pair.feed(pair.send(b""))
    pair._to_peer.write(pair.below.take())
    pair.peer.do_handshake()
    records = ClientRecords(cipher_of(pair.peer), (tmp_path / "keys").read_text())
    pair.feed(pair.send(b"") + b"".join(records.update() for _ in range(2 * FIRST_WITHOUT_DATA)))
    assert cast(Above, pair.above).reasons == [REASON]


def test_each_turn_decrypts_for_some_milliseconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Updating(tmp_path)
    sent = [b"%04d" % number for number in range(40)]
    stream = b"".join(map(pair.records.data, sent))
    now = iter(range(10**6))
    monkeypatch.setattr(pair.loop, "time", lambda: next(now) / 1000)
    pair.layer.get_buffer(-1)[: len(stream)] = stream
    pair.layer.buffer_updated(len(stream))
    # Another connection receives there.
    pair.layer.get_buffer(-1)[: len(stream)] = bytes(len(stream))
    turns = 0
    while pair.loop.ready:
        assert not pair.below.reading
        assert len(pair.received) <= 4 * 8 * (turns + 1)
        ready, pair.loop.ready = pair.loop.ready, []
        for callback, args in ready:
            callback(*args)
        turns += 1
    assert turns >= 5
    assert pair.received == b"".join(sent)
    assert pair.below.reading


def test_reads_that_fill_the_buffer_share_one_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transport reads again at once when the buffer was filled."""
    pair = Updating(tmp_path)
    monkeypatch.setattr(pair.above, "_buffer", bytearray(65536))
    now = iter(range(10**6))
    monkeypatch.setattr(pair.loop, "time", lambda: next(now) / 1000)
    for is_reading in (True, False):
        stream = b"".join(pair.records.data(bytes(16384 - 22)) for _ in range(4))
        pair.layer.get_buffer(-1)[:] = stream
        pair.layer.buffer_updated(len(stream))
        assert pair.below.reading is is_reading


def test_a_flood_of_updates_keeps_no_other_client_out(tmp_path: Path) -> None:
    """Formerly all updates were processed in one turn, a quarter of a millisecond each."""
    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    served: list[bytes] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        runtime = OsRuntime(loop)
        tls = TlsListener(runtime, TlsServer(server_context(), PrincipalMapper("DEFAULT")), Handshakes(runtime))
        listener = Listener(runtime, "SSL", Limits(), security_protocol="SSL", tls=tls)
        await listener.bind("127.0.0.1", 0, 50)

        def dispatch(connection: object, request: memoryview) -> list[bytes]:
            served.append(bytes(request))
            return [frame(b"answer")]

        await listener.serve(dispatch)
        context = logging_keys(client_context(tmp_path), tmp_path / "keys")
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        hostile = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        while True:
            try:
                hostile.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(65536))
        records = ClientRecords(cipher_of(hostile), (tmp_path / "keys").read_text())
        writer.write(outgoing.read() + b"".join(records.update() for _ in range(1000)))
        other, answers = await asyncio.open_connection(
            "127.0.0.1", listener.port, ssl=client_context(tmp_path), server_hostname="localhost"
        )
        answers.write(frame(b"honest"))
        assert await other.readexactly(10) == frame(b"answer")
        # The hostile client gets nothing more.
        try:
            while await reader.read(65536):
                pass
        except ConnectionError:
            pass
        assert served == [b"honest"]
        writer.close()
        answers.close()
        while listener.connections:  # noqa: ASYNC110  # the loop ends them in some turns
            await asyncio.sleep(0)
        listener.close()
        runtime.close()

    with runner:
        runner.run(scenario())
