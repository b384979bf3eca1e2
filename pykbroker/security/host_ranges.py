"""Hosts of ACLs that are ranges of addresses, in CIDR notation: `10.1.0.0/16`, `2001:db8::/32` (KIP-1276).

Responsible for which texts are ranges, and for finding the ranges of all ACLs that contain an address. Not responsible
for ACLs (acl_index.py) nor for the metadata.version that allows them (controller/acls.py). The accepted texts are those
of Apache Kafka's CidrUtils.

`HostRanges` looks up one range for each length of prefix that is in use. So a decision makes at most 129 look-ups, even
with 100,000 ranges.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Final, TypeVar

K = TypeVar("K")

#: The most addresses whose ranges are remembered. All are forgotten then, and when the ranges change.
MOST_REMEMBERED: Final = 10_000

_IPV4_RANGE: Final = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})/([0-9]{1,2})")
_IPV6_RANGE: Final = re.compile(r"(\[?)([0-9a-fA-F:.]+)(?:%[^/\]]+)?(\]?)/([+-]?[0-9]{1,9})")
_BITS: Final = {4: 32, 6: 128}


class NoRange(ValueError):
    """The text has a `/` and is not a range of addresses."""


def parse_range(host: str) -> tuple[int, int, int]:
    """Return the IP version of a range, the first address as a number, and the length of the prefix. Raises NoRange."""
    return _parse_ipv6(host) if ":" in host else _parse_ipv4(host)


def _parse_ipv4(host: str) -> tuple[int, int, int]:
    found = _IPV4_RANGE.fullmatch(host)
    if found is None:
        raise NoRange("it is not an IPv4 address with the length of a prefix")
    *numbers, length = map(int, found.groups())
    if max(numbers) > 255:
        raise NoRange("the numbers of an IPv4 address are between 0 and 255")
    return _masked(4, int.from_bytes(bytes(numbers), "big"), length)


def _parse_ipv6(host: str) -> tuple[int, int, int]:
    found = _IPV6_RANGE.fullmatch(host)
    if found is None or bool(found[1]) != bool(found[3]):
        raise NoRange("it is not an IPv6 address with the length of a prefix")
    try:
        address = IPv6Address(found[2])
    except ValueError:
        raise NoRange("it is not an IPv6 address with the length of a prefix") from None
    if address.ipv4_mapped is not None:
        raise NoRange("an IPv4 address in the form of IPv6 must be written in the form of IPv4")
    return _masked(6, int(address), int(found[4]))


def _masked(version: int, address: int, length: int) -> tuple[int, int, int]:
    bits = _BITS[version]
    if not 0 <= length <= bits:
        raise NoRange(f"the length of a prefix is between 0 and {bits}")
    return version, address >> (bits - length) << (bits - length), length


@lru_cache(maxsize=100_000)
def host_key(host: str) -> str:
    """Return the text under which the rules of an ACL's host are stored. Ranges with the same addresses have the same
    text; any other host, and a text with `/` that is no range, is its own text."""
    if "/" not in host:
        return host
    try:
        version, first, length = parse_range(host)
    except NoRange:
        # It may come from a cluster that did not check hosts, and no address is in it.
        return host
    return _text(version, first, length)


def _text(version: int, first: int, length: int) -> str:
    return f"{version}:{first:x}/{length}"


def _add(counter: Counter[K], key: K, change: int) -> None:
    counter[key] += change
    if not counter[key]:
        del counter[key]


class HostRanges:
    """The ranges that are in use, each counted."""

    def __init__(self) -> None:
        self._used: Counter[str] = Counter()
        #: (IP version, length of a prefix) -> the number of ranges with it
        self._lengths: Counter[tuple[int, int]] = Counter()
        #: the answers of `containing`, because a client asks for many resources from one address
        self._found: dict[str, tuple[str, ...]] = {}

    def add(self, host: str) -> None:
        """Note a range. Do nothing for any other host."""
        self._count(host, 1)

    def remove(self, host: str) -> None:
        self._count(host, -1)

    def _count(self, host: str, change: int) -> None:
        if "/" not in host:
            return
        try:
            version, first, length = parse_range(host)
        except NoRange:
            return
        self._found.clear()
        _add(self._used, _text(version, first, length), change)
        _add(self._lengths, (version, length), change)

    def containing(self, host: str) -> tuple[str, ...]:
        """Return the keys of the ranges that contain this address, which is written as by `java_address`."""
        if not self._lengths:
            return ()
        found = self._found.get(host)
        if found is None:
            if len(self._found) >= MOST_REMEMBERED:
                self._found.clear()
            found = self._found[host] = self._look_up(host)
        return found

    def _look_up(self, host: str) -> tuple[str, ...]:
        try:
            # The zone of a link-local address (`fe80::1%eth0`) does not count.
            parsed = IPv6Address(host.partition("%")[0]) if ":" in host else IPv4Address(host)
        except ValueError:
            return ()
        version, address, bits = parsed.version, int(parsed), _BITS[parsed.version]
        texts = (
            _text(version, address >> (bits - length) << (bits - length), length)
            for of, length in self._lengths
            if of == version
        )
        return tuple(text for text in texts if text in self._used)
