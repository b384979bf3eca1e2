"""Three combined nodes for faults. Each has a network namespace of its own, two log directories, and a wall clock that
can be set. The second directory of node 3 is a small file system.

Without the rights for namespaces and mounts (not root) the nodes share this process's network and file systems, and
faults that need more are left out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from struct import Struct

from testkit.nodes.nodes import eventually
from testkit.nodes.processes import Process, environment
from testkit.nodes.trio import NUMBERS, REPLICATED, Trio
from tests.faults.packet_switch import PacketSwitch, address_of

SETTINGS: Mapping[str, object] = {
    **REPLICATED,
    "default.replication.factor": 3,
    "replica.lag.time.max.ms": 8_000,
    "replica.high.watermark.checkpoint.interval.ms": 500,
    # So small that a node that comes back empty has to fetch a snapshot.
    "metadata.log.max.record.bytes.between.snapshots": 30_000,
    # A killed leader's connections end; a cut one's do not.
    "replica.socket.timeout.ms": 5_000,
    # Elections of tests that ask for one.
    "unclean.leader.election.enable": "false",
    "auto.leader.rebalance.enable": "false",
}
WITH_SMALL_DISK = 3
SMALL_DISK_BYTES = 512 << 20
_AHEAD = Struct("<q")
WALL_CLOCK = Path(__file__).parent / "wall_clock"


class FaultedTrio(Trio):
    """`switch`: the network between the namespaces; None without them. `may_mount`: whether node 3 has a small disk."""

    def __init__(self, folder: Path, switch: PacketSwitch | None, *, may_mount: bool) -> None:
        self.switch = switch
        self.may_mount = may_mount
        self.folder = folder
        if may_mount:
            self.second(WITH_SMALL_DISK).mkdir()
            self._mount("-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES}", "tmpfs", str(self.second(WITH_SMALL_DISK)))
        for number in NUMBERS:
            self._clock(number).write_bytes(_AHEAD.pack(0))
        own = {number: {"log.dirs": f"{self.data(number)},{self.second(number)}"} for number in NUMBERS}
        super().__init__(folder, "joining", SETTINGS, own)

    # -- where they are

    def host(self, number: int) -> str:
        return super().host(number) if self.switch is None else address_of(number)

    def choose_ports(self) -> tuple[dict[int, int], dict[int, int]]:
        if self.switch is None:
            return super().choose_ports()
        return dict.fromkeys(NUMBERS, 9092), dict.fromkeys(NUMBERS, 9093)

    def launch(self, number: int) -> Process:
        paths = [str(WALL_CLOCK), environment()["PYTHONPATH"]]
        env = {"PYTHONPATH": os.pathsep.join(paths), "PYKBROKER_TEST_CLOCK": str(self._clock(number))}
        prefix = () if self.switch is None else self.switch.inside(number)
        return Process(self.folder / f"{number}.log", str(self.files[number]), env=env, prefix=prefix)

    def second(self, number: int) -> Path:
        return self.folder / f"second{number}"

    def folder_of(self, number: int, topic: str, partition: int) -> Path:
        second = self.second(number) / f"{topic}-{partition}"
        return second if second.is_dir() else super().folder_of(number, topic, partition)

    # -- what happens to them

    def _clock(self, number: int) -> Path:
        return self.folder / f"clock{number}"

    def set_clock_ahead(self, number: int, seconds: int) -> None:
        """The wall clock of this node jumps."""
        with self._clock(number).open("r+b") as file:
            file.write(_AHEAD.pack(seconds * 1_000_000_000))

    def resize_small_disk(self, size: int) -> None:
        """In bytes; no less than what is on it."""
        self._mount("-o", f"remount,size={size}", str(self.second(WITH_SMALL_DISK)))

    @staticmethod
    def _mount(*arguments: str) -> None:
        subprocess.run(["mount", *arguments], check=True, capture_output=True)

    def wipe(self, number: int) -> None:
        """New, formatted disks instead of both; the node is down."""
        for folder in (self.data(number), self.second(number)):
            for path in folder.iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
        self.format(number, "--no-initial-controllers")

    def all_vote(self) -> None:
        eventually("all three vote", lambda: set(self.voters()) == set(NUMBERS))
