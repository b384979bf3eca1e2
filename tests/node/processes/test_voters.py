"""Voters that are added and removed while clients write: three processes, and the requests of
`kafka-metadata-quorum`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from pykbroker_wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from pykbroker_wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from pykbroker_wire.primitives import uuid_from_str
from testkit.nodes.nodes import PATIENCE_SECONDS, eventually
from testkit.nodes.trio import CLUSTER_ID, Trio
from testkit.nodes.wire import Wire, batch

SETTINGS = {"offsets.topic.replication.factor": 3, "default.replication.factor": 3, "min.insync.replicas": 2}


@contextmanager
def writing(trio: Trio, topic: str) -> Iterator[list[int]]:
    """Let another thread append numbers, through every failure; yield those that were acknowledged."""
    acknowledged: list[int] = []
    stop = Event()

    def write() -> None:
        number = 0
        while not stop.wait(0.02):
            number += 1
            try:
                leader = trio.leaders(topic)[0]
                with Wire(trio.address(leader), timeout=5) as wire:
                    answer = wire.produce(topic, batch(str(number).encode()), acks=-1)
            except (OSError, AssertionError, ValueError):
                continue
            if answer.error_code == ErrorCode.NONE:
                acknowledged.append(number)

    thread = Thread(target=write)
    thread.start()
    try:
        yield acknowledged
    finally:
        stop.set()
        thread.join()


def ask(trio: Trio, request: Any) -> tuple[ErrorCode, str | None]:
    """Send a request through any broker, which forwards it to the active controller."""
    with Wire(trio.address(min(trio.running))) as wire:
        answer = wire.call(request)
    return ErrorCode(answer.error_code), answer.error_message


def remove(trio: Trio, number: int) -> None:
    voter = RemoveRaftVoterRequest(
        cluster_id=CLUSTER_ID, voter_id=number, voter_directory_id=uuid_from_str(trio.voters()[number])
    )
    eventually(f"voter {number} is removed", lambda: ask(trio, voter)[0] is ErrorCode.NONE)


def add(trio: Trio, number: int) -> None:
    listener = Listener(name="CONTROLLER", host="127.0.0.1", port=trio.controller_ports[number])
    voter = AddRaftVoterRequest(
        cluster_id=CLUSTER_ID,
        timeout_ms=5000,
        voter_id=number,
        voter_directory_id=trio.directory_id(number),
        listeners=[listener],
    )
    eventually(f"voter {number} is added", lambda: ask(trio, voter)[0] is ErrorCode.NONE)


@pytest.mark.slow
def test_controllers_join_and_a_replaced_disk_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    trio = Trio(tmp_path, "joining", SETTINGS)
    with trio:
        eventually("all three vote", lambda: set(trio.voters()) == {1, 2, 3})
        trio.serving(1, 2, 3)
        topic = trio.create("written", [1, 2, 3])
        with writing(trio, topic) as acknowledged:
            eventually("something is written", lambda: acknowledged)
            before = trio.voters()
            lost = next(number for number in (2, 3) if number != trio.active())
            trio.kill(lost)
            shutil.rmtree(trio.data(lost))
            trio.format(lost, "--no-initial-controllers")
            trio.start(lost).ready(PATIENCE_SECONDS)
            eventually("the new disk votes", lambda: trio.voters().get(lost) not in (None, before[lost]))
            assert {number: trio.voters()[number] for number in before if number != lost} == {
                number: directory for number, directory in before.items() if number != lost
            }
        trio.in_sync(topic)
        trio.same_logs(topic)
    assert trio.complaints() == []


@pytest.mark.slow
@pytest.mark.parametrize("quorum", ["static", "dynamic"])
def test_voters_are_removed_and_added_while_clients_write(tmp_path: Path, quorum: str) -> None:
    trio = Trio(tmp_path, quorum, SETTINGS)
    with trio:
        trio.serving(1, 2, 3)
        if quorum == "static":
            refused = RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter_id=1, voter_directory_id=trio.directory_id(1))
            assert ask(trio, refused)[0] is ErrorCode.UNSUPPORTED_VERSION
            update = FeatureUpdateKey(feature="kraft.version", max_version_level=1, upgrade_type=1)
            raised = UpdateFeaturesRequest(feature_updates=[update], timeout_ms=5000)
            # Each voter reports its versions to the leader within a fetch timeout.
            eventually("kraft.version is raised", lambda: ask(trio, raised)[0] is ErrorCode.NONE)
            eventually("the leader knows all directories", lambda: "A" * 22 not in trio.voters().values())
        topic = trio.create("written", [1, 2, 3])
        with writing(trio, topic) as acknowledged:
            follower = next(number for number in (1, 2, 3) if number != trio.active())
            remove(trio, follower)
            eventually("two voters are left", lambda: len(trio.voters()) == 2)
            add(trio, follower)
            assert set(trio.voters()) == {1, 2, 3}
            leader = trio.active()
            remove(trio, leader)
            assert trio.active(but=leader) != leader
            eventually("the old leader follows", lambda: set(trio.voters()) == {1, 2, 3} - {leader})
            add(trio, leader)
            eventually("all three vote", lambda: set(trio.voters()) == {1, 2, 3})
            written = len(acknowledged)
            # The remaining voters are a majority of the three, with the one that was added.
            gone = next(number for number in (1, 2, 3) if number not in (leader, trio.active()))
            trio.kill(gone)
            eventually("clients write on", lambda: len(acknowledged) > written)
            trio.start(gone).ready(PATIENCE_SECONDS)
        trio.in_sync(topic)
        trio.same_logs(topic)
    assert trio.complaints() == []
