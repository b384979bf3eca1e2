"""The cost of ACLs for a Produce request: `python -m bench.authorizing`.

One node in this process, and frames that are passed to its dispatcher on its loop, without a socket or a client. Three
authorizers take turns, so that a drift of the machine's speed affects all: none, StandardAuthorizer with one ACL, and
StandardAuthorizer with 100,000. It prints the CPU time of the loop's thread for each request, as the median of the
rounds. The frames are those of one client that writes to one topic, as producers do.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / part) for part in ("", "wire", "log", "raft")]

import pykbroker  # noqa: E402
from pykbroker.dispatch.dispatcher import Dispatcher  # noqa: E402
from pykbroker.dispatch.peers import LocalPeer  # noqa: E402
from pykbroker.security.acl import Acl, PatternType, Permission  # noqa: E402
from pykbroker.security.authorizer import AllowAll, Authorizer, Operation, Resource  # noqa: E402
from pykbroker.security.peer_session import PeerSession  # noqa: E402
from pykbroker.security.standard_authorizer import StandardAuthorizer  # noqa: E402
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData  # noqa: E402
from pykbroker_wire.records.batch import build_batch  # noqa: E402
from testkit.nodes.wire import Wire, frame_of  # noqa: E402

TOPIC, USER = "written", "User:writer"
ROUNDS, REQUESTS = 60, 3000


def authorizers(many: int = 100_000) -> dict[str, Authorizer]:
    found: dict[str, Authorizer] = {"no authorizer": AllowAll()}
    for count in (1, many):
        authorizer = StandardAuthorizer(1)
        one = Acl(Resource.TOPIC, TOPIC, PatternType.LITERAL, USER, "*", Operation.WRITE, Permission.ALLOW)
        others = {
            b"%d" % number: one._replace(resource_name=f"topic-{number % 1000}", principal=f"User:{number}")
            for number in range(count - 1)
        }
        authorizer.change({b"one": one, **others})
        authorizer.complete_initial_load()
        found[f"{count:,} ACL{'s' if count > 1 else ''}"] = authorizer
    return found


def measure(rounds: int = ROUNDS, requests: int = REQUESTS, many: int = 100_000) -> Mapping[str, list[float]]:
    """Return microseconds of CPU for each request, round by round."""
    taken: dict[str, list[float]] = {}
    with pykbroker.Broker({"log.retention.check.interval.ms": "3600000"}) as broker:
        with Wire(broker.bootstrap_servers) as wire:
            wire.create(TOPIC)
            topic_id = wire.metadata(TOPIC).topics[0].topic_id
        batch = build_batch([(None, b"x" * 100, (), time.time_ns() // 1_000_000)])
        data = [TopicProduceData(topic_id=topic_id, partition_data=[PartitionProduceData(index=0, records=batch)])]
        request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=1000, topic_data=data)
        frame = frame_of(request, 13, correlation_id=7, client_id="bench")[4:]
        services = broker._node.services
        dispatcher = Dispatcher(services)
        peer = LocalPeer(PeerSession(USER), "PLAINTEXT", "PLAINTEXT")

        def one_round(name: str, authorizer: Authorizer) -> None:
            services.authorizer = authorizer
            begin = time.thread_time()
            for _ in range(requests):
                assert dispatcher(peer, memoryview(bytearray(frame))) is not None
            taken.setdefault(name, []).append((time.thread_time() - begin) / requests * 1e6)

        sides = list(authorizers(many).items())
        for number in range(rounds):
            for name, authorizer in sides[number % 3 :] + sides[: number % 3]:
                _on_loop(broker, partial(one_round, name, authorizer))
    return taken


def _on_loop(broker: pykbroker.Broker, call: Callable[[], None]) -> None:
    """Run a call on the node's loop, and wait for it."""
    done, failed = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - it is raised again where it is waited for
            failed.append(error)
        done.set()

    assert broker._run is not None
    assert broker._run._on_loop(run)
    done.wait()
    if failed:
        raise failed[0]


def main() -> None:
    taken = measure()
    without = taken["no authorizer"]
    for name, values in taken.items():
        # Ratios within a round, since rounds differ by more than the effect that is measured.
        ratios = [value / base for value, base in zip(values, without, strict=True)]
        print(f"{name:>15}: {statistics.median(values):6.2f} µs, {statistics.median(ratios) - 1:+.1%}")


if __name__ == "__main__":
    main()
