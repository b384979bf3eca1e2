"""Hosts of ACLs that are ranges of addresses. The verdicts are those of Apache Kafka 4.4.0's CidrUtils."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.security.acl import java_address
from pykbroker.security.host_ranges import MOST_REMEMBERED, HostRanges, NoRange, host_key, parse_range


@pytest.mark.parametrize(
    ("host", "found"),
    [
        ("10.0.0.0/8", (4, 10 << 24, 8)),
        ("10.9.9.9/8", (4, 10 << 24, 8)),
        ("010.1.2.3/08", (4, 10 << 24, 8)),
        ("0.0.0.0/0", (4, 0, 0)),
        ("2001:DB8::9/032", (6, 0x20010DB8 << 96, 32)),
        ("[2001:db8::]/+32", (6, 0x20010DB8 << 96, 32)),
        ("::1/128", (6, 1, 128)),
        ("1:2:3:4:5:6:7:8/0", (6, 0, 0)),
        ("fe80::%eth0/10", (6, 0x3FA << 118, 10)),
    ],
)
def test_ranges(host: str, found: tuple[int, int, int]) -> None:
    assert parse_range(host) == found


@pytest.mark.parametrize(
    "host",
    ["10.1.2.3/33", "10.1.2.3/", "10.1.2/8", "10.1.2.300/8", "10.1.2.3/8/8", " 10.1.2.3/8", "10.1.2.3/255.0.0.0", "/8"]
    + ["10.0.0.0/-1", "/", "abc/8", "*/8", "\uff110.1.2.3/8", "x:/8", "10.1.2.3:80/8", "::g/0", ":/0", "2001:db8::/129"]
    + ["2001:db8::/", "2001:db8::/3 2", "2001:db8::/32/4", "2001:db8::/-1", "2001:db8:::/32", "[2001:db8::/32"]
    + ["::ffff:10.0.0.0/104", "::/" + "1" * 5000],
)
def test_texts_that_are_no_ranges(host: str) -> None:
    with pytest.raises(NoRange):
        parse_range(host)
    assert host_key(host) == host


def test_an_address_has_the_form_of_java() -> None:
    ranges = HostRanges()
    for host in ("10.0.0.0/8", "2001:db8::/32", "fe80::/10", "::/0"):
        ranges.add(host)
    for address, containing in (
        ("10.255.255.255", {"10.0.0.0/8"}),
        ("::ffff:10.1.2.3", {"10.0.0.0/8"}),
        ("11.0.0.0", set()),
        ("2001:db8::5", {"2001:db8::/32", "::/0"}),
        ("fe80::5%eth0", {"fe80::/10", "::/0"}),
        ("localhost", set()),
        ("", set()),
    ):
        assert set(ranges.containing(java_address(address))) == set(map(host_key, containing))


v4 = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 32))
v6 = st.tuples(st.integers(0, 2**128 - 1).filter(lambda one: one >> 32 != 0xFFFF), st.integers(0, 128))


@given(st.lists(v4, max_size=6), st.lists(v6, max_size=6), st.integers(0, 11), st.data())
def test_the_ranges_that_contain_an_address(
    fours: list[tuple[int, int]], sixes: list[tuple[int, int]], gone: int, data: st.DataObject
) -> None:
    networks: list[IPv4Network | IPv6Network] = [IPv4Network(one, strict=False) for one in fours]
    networks += [IPv6Network(one, strict=False) for one in sixes]
    texts = [f"{IPv4Address(one)}/{length}" for one, length in fours]
    texts += [f"{IPv6Address(one)}/{length}" for one, length in sixes]
    near = [*networks, IPv4Network("10.0.0.0/8")]
    of = data.draw(st.sampled_from(near))
    address = of[data.draw(st.integers(0, of.num_addresses - 1))]
    ranges = HostRanges()
    for text in texts:
        ranges.add(text)
        # The answer is remembered, and must not outlive a change.
        ranges.containing(java_address(str(address)))
    for text in texts[:gone]:
        ranges.remove(text)
        ranges.containing(java_address(str(address)))
    expected = {host_key(text) for text, one in zip(texts[gone:], networks[gone:], strict=True) if address in one}
    assert set(ranges.containing(java_address(str(address)))) == expected
    for text in texts[gone:]:
        ranges.remove(text)
    assert vars(ranges) == vars(HostRanges())


def test_so_many_addresses_are_remembered() -> None:
    ranges = HostRanges()
    ranges.add("10.0.0.0/8")
    for number in range(2 * MOST_REMEMBERED + 1):
        assert ranges.containing(str(IPv4Address(10 << 24 | number))) == ("4:a000000/8",)
    assert len(ranges._found) == 1
