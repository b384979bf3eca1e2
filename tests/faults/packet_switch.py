"""A network between network namespaces whose packets this process carries, and cuts, loses or delays on command.

A test uses `PacketSwitch`. Each member has a namespace of its own with one TUN device. A process reads every packet of
every device, and writes it to the device of its receiver, later, or not at all. So no kernel module for delay and loss
is needed (this project's CI has a kernel without netem and nftables), only /dev/net/tun and root. One member, CLIENTS,
is the namespace in which the switch was made.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import json
import os
import random
import selectors
import struct
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from types import TracebackType
from typing import Self

CLIENTS = 100
NETWORK = "10.77.0"
_DEVICE = "pyk0"
_MTU = 60_000
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_CLONE_NEWNET = 0x40000000
#: the most packets that wait; more are lost, as in a full queue
_MOST_WAITING = 20_000


def address_of(member: int) -> str:
    return f"{NETWORK}.{member}"


@dataclass(slots=True)
class Weather:
    """The faults of packets; pairs are (from, to)."""

    cut: list[tuple[int, int]] = field(default_factory=list)
    #: the share of lost packets between different members
    loss: float = 0.0
    delay_ms: float = 0.0
    #: the most additional delay, at random, so that packets overtake each other
    jitter_ms: float = 0.0


class PacketSwitch:
    """`with PacketSwitch((1, 2, 3)) as switch`: namespaces and the process between them, until the block ends."""

    def __init__(self, members: Sequence[int]) -> None:
        self._members = members
        self._keepers: dict[int, subprocess.Popen[bytes]] = {}
        self._carrier: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            for member in self._members:
                # A namespace lives as long as a process in it.
                keeper = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
                self._keepers[member] = keeper
            places = {member: f"/proc/{keeper.pid}/ns/net" for member, keeper in self._keepers.items()}
            own = os.stat("/proc/self/ns/net").st_ino
            for member, place in places.items():
                while os.stat(place).st_ino == own:
                    assert self._keepers[member].poll() is None, "a network namespace cannot be made here"
                    time.sleep(0.001)
            command = [sys.executable, __file__, json.dumps(places)]
            self._carrier = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._heard()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        for process in (self._carrier, *self._keepers.values()):
            if process is not None:
                process.kill()
                process.wait()
        if self._carrier is not None:
            for pipe in (self._carrier.stdin, self._carrier.stdout):
                if pipe is not None:
                    pipe.close()

    def inside(self, member: int) -> list[str]:
        """The beginning of a command that runs there."""
        return ["nsenter", f"--net=/proc/{self._keepers[member].pid}/ns/net"]

    def set(self, weather: Weather) -> None:
        assert self._carrier is not None
        assert self._carrier.stdin is not None
        self._carrier.stdin.write(json.dumps(asdict(weather)).encode() + b"\n")
        self._carrier.stdin.flush()
        self._heard()

    def _heard(self) -> None:
        assert self._carrier is not None
        assert self._carrier.stdout is not None
        assert self._carrier.stdout.readline() == b"ok\n", "the packet switch has ended"


# The process


def _device() -> int:
    """A TUN device in the namespace of this thread."""
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, _TUNSETIFF, struct.pack("16sH14x", _DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
    return file


def _attached(members: Mapping[int, str]) -> dict[int, int]:
    """The devices of all members, up and with their addresses."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(file: int) -> None:
        if libc.setns(file, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")

    def attach(member: int) -> int:
        file = _device()
        for words in (
            ("link", "set", "lo", "up"),
            ("address", "add", f"{address_of(member)}/24", "dev", _DEVICE),
            ("link", "set", _DEVICE, "mtu", str(_MTU), "up"),
        ):
            subprocess.run(["ip", *words], check=True)
        return file

    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    found = {CLIENTS: attach(CLIENTS)}
    for member, place in members.items():
        there = os.open(place, os.O_RDONLY)
        enter(there)
        found[member] = attach(member)
        os.close(there)
    enter(home)
    os.close(home)
    return found


class _Carrier:
    """Carries packets between devices."""

    def __init__(self, devices: Mapping[int, int]) -> None:
        self._devices = devices
        self._chance = random.Random(7)
        self._cut: set[tuple[int, int]] = set()
        self._weather = Weather()
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._order = count()

    def change(self, weather: Weather) -> None:
        self._weather = weather
        self._cut = {(pair[0], pair[1]) for pair in weather.cut}

    def run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for member, device in self._devices.items():
                selector.register(device, selectors.EVENT_READ, member)
            selector.register(sys.stdin.fileno(), selectors.EVENT_READ, None)
            while True:
                wait = None if not self._waiting else max(0.0, self._waiting[0][0] - time.monotonic())
                for key, _ in selector.select(wait):
                    if key.data is not None:
                        self._read(key.data)
                    elif not self._told():
                        return
                now = time.monotonic()
                while self._waiting and self._waiting[0][0] <= now:
                    _, _, device, packet = heapq.heappop(self._waiting)
                    self._write(device, packet)

    def _told(self) -> bool:
        line = sys.stdin.buffer.readline()
        if not line:
            return False
        self.change(Weather(**json.loads(line)))
        print("ok", flush=True)
        return True

    def _read(self, sender: int) -> None:
        for _ in range(32):
            try:
                packet = os.read(self._devices[sender], 65_536)
            except BlockingIOError:
                return
            # IPv4: the last byte of the receiver's address. (IPv6 packets are those of a kernel that looks around.)
            receiver = packet[19] if packet[0] >> 4 == 4 else -1
            if receiver not in self._devices or (sender, receiver) in self._cut:
                continue
            weather = self._weather
            if weather.loss and self._chance.random() < weather.loss:
                continue
            device = self._devices[receiver]
            if not weather.delay_ms and not weather.jitter_ms:
                self._write(device, packet)
            elif len(self._waiting) < _MOST_WAITING:
                delay_ms = weather.delay_ms + self._chance.random() * weather.jitter_ms
                heapq.heappush(self._waiting, (time.monotonic() + delay_ms / 1000, next(self._order), device, packet))

    @staticmethod
    def _write(device: int, packet: bytes) -> None:
        try:
            os.write(device, packet)
        except BlockingIOError:
            pass  # the receiver's queue is full: a lost packet


def pairs(one: Iterable[int], other: Iterable[int], *, both_ways: bool = True) -> list[tuple[int, int]]:
    """From each of the first to each of the second, and back."""
    there = [(a, b) for a in one for b in other]
    return there + [(b, a) for a, b in there] if both_ways else there


if __name__ == "__main__":
    _carrier = _Carrier(_attached({int(member): place for member, place in json.loads(sys.argv[1]).items()}))
    print("ok", flush=True)
    _carrier.run()
