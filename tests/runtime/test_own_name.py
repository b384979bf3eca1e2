"""The name of this machine: Java's rules over tables of names, and the thread that asks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from pykbroker.runtime.own_name import addresses_of, ask_on_a_thread, canonical_name, spelled


@dataclass
class Hosts:
    """The names and addresses of a resolver. `asked` has the calls that it got."""

    by_name: Mapping[str, list[str]]
    by_address: Mapping[str, str]
    asked: list[str] = field(default_factory=list)

    def addresses(self, name: str) -> list[str]:
        self.asked.append(name)
        if name not in self.by_name:
            raise OSError(f"{name} is not known")
        return self.by_name[name]

    def name(self, address: str) -> str:
        self.asked.append(address)
        if address not in self.by_address:
            raise OSError(f"{address} is not known")
        return self.by_address[address]


@pytest.mark.parametrize(
    ("by_name", "by_address", "expected"),
    [
        ({"m": ["10.0.0.1"], "m.example.org": ["10.0.0.1"]}, {"10.0.0.1": "m.example.org"}, "m.example.org"),
        # Debian's own line for a machine without a fixed address.
        ({"m": ["127.0.1.1"], "m.lan": ["127.0.1.1"]}, {"127.0.1.1": "m.lan"}, "m.lan"),
        # The name of the address has another address, or none: it may be anybody's.
        ({"m": ["10.0.0.1"], "m.example.org": ["10.0.0.2"]}, {"10.0.0.1": "m.example.org"}, "10.0.0.1"),
        ({"m": ["10.0.0.1"]}, {"10.0.0.1": "m.example.org"}, "10.0.0.1"),
        ({"m": ["10.0.0.1"]}, {}, "10.0.0.1"),
        # Only the first address counts.
        ({"m": ["10.0.0.1", "10.0.0.2"], "n": ["10.0.0.2"]}, {"10.0.0.2": "n"}, "10.0.0.1"),
        ({"m": ["fd00::1"]}, {}, "fd00:0:0:0:0:0:0:1"),
        ({"m": ["127.0.0.1"], "localhost": ["127.0.0.1"]}, {"127.0.0.1": "localhost"}, "localhost"),
    ],
)
def test_the_full_name_counts_if_it_has_the_address(
    by_name: Mapping[str, list[str]], by_address: Mapping[str, str], expected: str
) -> None:
    hosts = Hosts(by_name, by_address)
    assert canonical_name("m", hosts.addresses, hosts.name) == expected


def test_a_machine_that_is_called_localhost_is_not_looked_up() -> None:
    hosts = Hosts({"l.lan": ["127.0.0.1"]}, {"127.0.0.1": "l.lan"})
    assert canonical_name("localhost", hosts.addresses, hosts.name) == "l.lan"
    assert hosts.asked[0] == "127.0.0.1"


def test_a_name_without_an_address_is_an_error() -> None:
    hosts = Hosts({}, {})
    with pytest.raises(OSError, match="m is not known"):
        canonical_name("m", hosts.addresses, hosts.name)


@pytest.mark.parametrize(
    ("host", "written"),
    [
        ("::1", "0:0:0:0:0:0:0:1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
        ("kafka", "kafka"),
    ],
)
def test_addresses_are_written_as_java_writes_them(host: str, written: str) -> None:
    assert spelled(host) == written


def test_addresses_of_the_operating_system() -> None:
    assert "127.0.0.1" in addresses_of("localhost")
    with pytest.raises(OSError, match="is not the name of a machine"):
        addresses_of("x" * 64)


def test_the_resolver_is_asked_off_the_loop() -> None:
    async def ask() -> tuple[str, int]:
        asked_on: list[int] = []

        def name() -> str:
            asked_on.append(threading.get_ident())
            return "m.example.org"

        return await ask_on_a_thread(asyncio.get_running_loop(), name), asked_on[0]

    assert asyncio.run(ask()) != ("m.example.org", threading.get_ident())


def test_what_the_resolver_raises_is_raised() -> None:
    def name() -> str:
        raise OSError("m: Name or service not known")

    async def ask() -> None:
        await ask_on_a_thread(asyncio.get_running_loop(), name)

    with pytest.raises(OSError, match="Name or service not known"):
        asyncio.run(ask())


def test_a_resolver_that_hangs_holds_up_neither_the_start_nor_the_end() -> None:
    answers = threading.Event()
    ended = threading.Event()

    def name() -> str:
        answers.wait()
        # The loop is closed by now.
        ended.set()
        return "late"

    async def ask() -> None:
        await ask_on_a_thread(asyncio.get_running_loop(), name, limit_s=0.01)

    with pytest.raises(TimeoutError, match=r"did not answer within 0\.01 s"):
        asyncio.run(ask())
    (thread,) = (each for each in threading.enumerate() if each.name == "pykbroker-own-name")
    assert thread.daemon
    answers.set()
    assert ended.wait(10)
    thread.join(10)
