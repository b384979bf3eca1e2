"""The parts of the fault runs work: packets are cut, lost and late, and a wall clock jumps."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.fault_run import may_unshare
from tests.faults.faulted_trio import WALL_CLOCK
from tests.long_runs import ROOT

pytestmark = pytest.mark.slow

#: run in namespaces of its own: an echo server in the namespace of member 1, a client outside
ECHO = """
import socket, subprocess, sys, time
from tests.faults.packet_switch import CLIENTS, PacketSwitch, Weather, address_of, pairs

SERVER = '''
import socket
listening = socket.create_server(("", 9092))
print("up", flush=True)
connection, _ = listening.accept()
while data := connection.recv(65536):
    connection.sendall(data)
'''
with PacketSwitch((1, 2)) as switch:
    server = subprocess.Popen([*switch.inside(1), sys.executable, "-c", SERVER], stdout=subprocess.PIPE)
    server.stdout.readline()
    client = socket.create_connection((address_of(1), 9092), 10)

    def echo():
        began = time.monotonic()
        client.sendall(b"x")
        assert client.recv(10) == b"x"
        return time.monotonic() - began

    quick = min(echo() for _ in range(20))
    switch.set(Weather(delay_ms=50))
    assert echo() >= 0.1 > quick, quick
    switch.set(Weather(loss=0.3))
    assert max(echo() for _ in range(20)) > 0.1  # what is lost comes after a timeout
    for cut in (pairs([1], [CLIENTS]), [(1, CLIENTS)], [(CLIENTS, 1)]):
        switch.set(Weather(cut=cut))
        client.settimeout(0.5)
        client.sendall(b"y")
        try:
            client.recv(10)
            raise SystemExit(f"{cut} cuts nothing")
        except TimeoutError:
            pass
        switch.set(Weather())
        client.settimeout(30)
        assert client.recv(10) == b"y"
    server.kill()
    server.wait()
print("done")
"""


def test_packets_are_cut_lost_and_late() -> None:
    if not may_unshare():
        pytest.skip("no network namespaces or no /dev/net/tun here: the fault runs leave the network out")
    paths = os.pathsep.join(str(ROOT / part) for part in ("", "wire", "log", "raft"))
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", ECHO],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_a_wall_clock_jumps_and_the_steady_clock_does_not(tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    clock.write_bytes(struct.pack("<q", 0))
    program = "import sys, time\nfor _ in sys.stdin: print(time.time(), time.time_ns(), time.monotonic(), flush=True)"
    env = {**os.environ, "PYTHONPATH": str(WALL_CLOCK), "PYKBROKER_TEST_CLOCK": str(clock)}
    with subprocess.Popen(
        [sys.executable, "-c", program], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask() -> tuple[float, float, float]:
            assert process.stdin is not None
            assert process.stdout is not None
            print("?", file=process.stdin, flush=True)
            wall, wall_ns, steady = process.stdout.readline().split()
            return float(wall), int(wall_ns) / 1e9, float(steady)

        before = ask()
        clock.write_bytes(struct.pack("<q", 3_000_000_000_000))
        after = ask()
        process.stdin.close()
    for number in (0, 1):
        assert 3_000 <= after[number] - before[number] < 3_100
    assert after[2] - before[2] < 100
