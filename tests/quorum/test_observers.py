"""A broker-only node follows the metadata log; three drivers elect among themselves. In memory, but through bytes."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

from pykbroker.quorum.channel import QuorumPeers
from pykbroker.quorum.driver import QuorumDriver
from pykbroker_raft.metadata_storage import format_voters
from pykbroker_raft.voters import Endpoint, ReplicaKey, VoterNode, VoterSet
from tests.in_memory_peers import InMemoryPeers
from tests.quorum.world import CLUSTER, InlineRuntime, Listener, driver, format_one, run, until


def serve(runtime: InlineRuntime, quorum: QuorumDriver) -> Any:
    """Serve as a controller listener would: encode and decode requests and responses."""

    def call(request: Any) -> Any:
        version = type(request).MAX_VERSION
        decoded, _ = type(request).decode(b"".join(bytes(part) for part in request.encode(version)), 0, version)
        answer = quorum.handle(decoded, version, "CONTROLLER")
        if not isinstance(answer, asyncio.Future):
            return encoded(answer)
        later: asyncio.Future[Any] = runtime.loop.create_future()

        def done(future: asyncio.Future[Any]) -> None:
            if later.done():
                return
            if future.cancelled() or future.exception() is not None:
                later.set_exception(ConnectionError("gone"))
            else:
                later.set_result(encoded(future.result()))

        answer.add_done_callback(done)
        return later

    return call


def encoded(message: Any) -> Any:
    version = type(message).MAX_VERSION
    decoded, _ = type(message).decode(b"".join(bytes(part) for part in message.encode(version)), 0, version)
    return decoded


def observer(runtime: InlineRuntime, peers: QuorumPeers, log_dir: str, id: int = 2, **fields: Any) -> QuorumDriver:
    return driver(
        runtime,
        log_dir,
        peers=peers,
        node_id=id,
        directory_id=bytes([id]) * 16,
        endpoints=(),
        bootstrap=(("controller", 9093),),
        is_controller=False,
        **fields,
    )


def test_observer_follows() -> None:
    async def test() -> None:
        runtime = InlineRuntime()
        format_one(runtime.disk, "meta")
        peers = InMemoryPeers(runtime)
        leader = driver(runtime)
        await leader.start()
        peers.nodes["controller", 9093] = serve(runtime, leader)
        leader.append([b"a", b"b"])
        follower, listener = observer(runtime, Shared(peers), "other"), Listener()
        follower.register(listener)
        await follower.start()
        await until(lambda: listener.values == [b"a", b"b"])
        assert follower.leader is not None
        assert (follower.leader.id, follower.leader.host, follower.leader.port) == (1, "controller", 9093)
        assert not follower.is_leader
        started = runtime.loop.time()
        leader.append([b"c"])
        await until(lambda: listener.values == [b"a", b"b", b"c"])
        # It came with the parked fetch, and with the next one for the high watermark, and not by polling.
        assert runtime.loop.time() - started < 0.3
        assert "leader 1 epoch 1" in listener.told
        await follower.stop()

        # The controller restarts while the observer is away, and again while it runs.
        await leader.stop()
        leader = driver(runtime)
        await leader.start()
        peers = InMemoryPeers(runtime)
        peers.nodes["controller", 9093] = serve(runtime, leader)
        follower, listener = observer(runtime, Shared(peers), "other"), Listener()
        follower.register(listener)
        await follower.start()
        await until(lambda: follower.high_watermark == leader.high_watermark == 7)
        assert listener.values == [b"a", b"b", b"c"]
        await leader.stop()
        leader = driver(runtime)
        await leader.start()
        peers.nodes["controller", 9093] = serve(runtime, leader)
        leader.append([b"d"])
        await until(lambda: listener.values == [b"a", b"b", b"c", b"d"])
        assert listener.told[-2:] == ["leader 1 epoch 3", "commit 8 epoch 3 d"]
        await follower.stop()
        await leader.stop()

    run(test)


def test_observer_takes_a_snapshot() -> None:
    async def test() -> None:
        runtime = InlineRuntime()
        format_one(runtime.disk, "meta")
        peers = InMemoryPeers(runtime)
        # The snapshot comes in pieces of 50 bytes.
        leader = driver(runtime, snapshot_max_bytes=50)
        await leader.start()
        peers.nodes["controller", 9093] = serve(runtime, leader)
        last = leader.append([b"x%d" % index for index in range(30)])
        await until(lambda: leader.high_watermark == last + 1)
        await leader.write_snapshot(last, 1, [b"state-of-%d" % index for index in range(20)])
        leader.append([b"after"])
        follower, listener = observer(runtime, Shared(peers), "other"), Listener()
        follower.register(listener)
        await follower.start()
        await until(lambda: bool(listener.values) and listener.values[-1] == b"after")
        assert listener.told[-2].startswith(f"snapshot {last} epoch 1 state-of-0")
        assert len(listener.values) == 21
        name = f"{last + 1:020d}-0000000001.checkpoint"
        assert name in runtime.disk.list("other/__cluster_metadata-0")
        assert follower.storage.load_snapshot(max(follower.storage.snapshots)) == leader.storage.load_snapshot(
            max(leader.storage.snapshots)
        )
        assert follower.kraft_version == 1
        assert follower.voters == leader.voters
        await follower.stop()
        again, listener = observer(runtime, Shared(peers), "other"), Listener()
        again.register(listener)
        await again.start()
        await until(lambda: bool(listener.values) and listener.values[-1] == b"after")
        await again.stop()
        await leader.stop()

    run(test)


def test_what_is_up_to_date_has_all_that_the_leader_calls_committed() -> None:
    """It must not be a first part of it, nor a snapshot without the records after it, because an ACL may be in the
    rest."""

    async def play(has_snapshot: bool) -> None:
        runtime = InlineRuntime()
        format_one(runtime.disk, "meta")
        peers = InMemoryPeers(runtime)
        # Each answer has a record or two.
        leader = driver(runtime, fetch_max_bytes=100)
        await leader.start()
        peers.nodes["controller", 9093] = serve(runtime, leader)
        last = 0
        for index in range(30):
            last = leader.append([b"x%d" % index])
        await until(lambda: leader.high_watermark == last + 1)
        if has_snapshot:
            await leader.write_snapshot(last - 10, 1, [b"state"])
        follower, listener = observer(runtime, Shared(peers), "other", fetch_max_bytes=100), Listener()
        told: list[int] = []
        seen: list[list[bytes]] = []

        def up_to_date() -> None:
            seen.append(list(listener.values))

        listener.on_commit = lambda: told.append(len(listener.values))
        follower.register(listener, up_to_date)
        await follower.start()
        await until(lambda: bool(seen))
        assert seen[0][-1] == b"x29"
        # It came in pieces.
        assert len(told) > 5
        assert seen[0][0] == (b"state" if has_snapshot else b"x0")
        # An observer that comes back is up to date as well, without anything new.
        await follower.stop()
        again, listener = observer(runtime, Shared(peers), "other"), Listener()
        again.register(listener, up_to_date)
        await again.start()
        await until(lambda: len(seen) == 2)
        assert seen[1][-1] == b"x29"
        await again.stop()
        await leader.stop()

    run(lambda: play(False))
    run(lambda: play(True))


def test_three_voters_elect_and_hand_on() -> None:
    async def test() -> None:
        runtime = InlineRuntime()
        peers = InMemoryPeers(runtime)
        ids = (1, 2, 3)
        voters = VoterSet.of(
            VoterNode(ReplicaKey(id, bytes([id]) * 16), (Endpoint("CONTROLLER", f"c{id}", 9093),)) for id in ids
        )
        quorums: dict[int, QuorumDriver] = {}
        listeners = {id: Listener() for id in ids}
        for id in ids:
            runtime.disk.make_dirs(f"d{id}")
            format_voters(runtime.disk, f"d{id}", voters, 1)
            quorum = driver(
                runtime,
                f"d{id}",
                peers=Shared(peers),
                node_id=id,
                directory_id=bytes([id]) * 16,
                endpoints=voters.endpoints(id),
                bootstrap=tuple((f"c{id}", 9093) for id in ids),
                election_timeout_ms=80,
                fetch_timeout_ms=60_000,
                election_backoff_max_ms=50,
                fetch_max_wait_ms=50,
            )
            quorums[id] = quorum
            quorum.register(listeners[id])
            peers.nodes[f"c{id}", 9093] = serve(runtime, quorum)
        for quorum in quorums.values():
            await quorum.start()

        def leaders(living: dict[int, QuorumDriver]) -> list[QuorumDriver]:
            return [quorum for quorum in living.values() if quorum.is_leader and quorum.high_watermark]

        await until(lambda: len(leaders(quorums)) == 1)
        first = leaders(quorums)[0]
        first.append([b"a"])
        await until(lambda: all(listener.values == [b"a"] for listener in listeners.values()))
        epoch = first.epoch
        del quorums[first.node_id]
        await first.stop()
        del peers.nodes[f"c{first.node_id}", 9093]
        await until(functools.partial(lambda living: len(leaders(living)) == 1, quorums))
        second = leaders(quorums)[0]
        # The leadership was handed on: without that there would be no second leader before the fetch timeout.
        assert second.epoch > epoch
        second.append([b"b"])
        await until(lambda: all(listeners[id].values == [b"a", b"b"] for id in quorums))
        assert second.cluster_id == CLUSTER
        for quorum in quorums.values():
            await quorum.stop(timeout_ms=50)

    run(test)


class Shared:
    """Closing one node's way to its peers leaves the others theirs."""

    def __init__(self, peers: InMemoryPeers) -> None:
        self.send = peers.send

    def close(self) -> None:
        pass
