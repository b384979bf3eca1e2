"""Addresses for the first contact: one rule for every tool, with the texts of Apache Kafka's clients."""

from __future__ import annotations

import pytest

from pykbroker.config.kinds import ConfigError
from pykbroker.tools.cluster.bootstrap_list import NotAnAddress, PortOutOfRange, address_of, bootstrap_addresses
from pykbroker.tools.kafka import tool_clients
from pykbroker.tools.kafka.__main__ import main


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("a", "a:9092"),
        (" a ", "a:9092"),
        ("a:1", "a:1"),
        ("[::1]", "[::1]:9092"),
        ("[::1]:1", "[::1]:1"),
        ("SSL://a:1", "a:1"),
        ("", None),
        (":1", None),
        ("a:", None),
        ("a:1:2", None),
        ("::1", None),
        ("a:65535", "a:65535"),
        ("a:0065535", "a:65535"),
        ("a:65536", None),
        ("a:" + "1" * 5000, None),
        ("a:١", None),
        ("[", None),
        ("[]:1", None),
        ("[::1:1", None),
        ("a b", None),
        ("a b:1", None),
    ],
)
def test_a_port_may_be_left_out(written: str, address: str | None) -> None:
    if address is None:
        with pytest.raises(NotAnAddress):
            address_of(written, 9092)
    else:
        assert str(address_of(written, 9092)) == address


@pytest.mark.parametrize(
    ("written", "host", "port"),
    [("a:1", "a", 1), (" a:01 ", "a", 1), ("[::1]:2", "::1", 2), ("::1:2", "::1", 2), ("PLAINTEXT://a:3", "a", 3)],
)
def test_the_last_colon_is_before_a_port_that_must_be_there(written: str, host: str, port: int) -> None:
    """Apache Kafka's clients take an IPv6 address without brackets."""
    assert address_of(written) == (host, port)


@pytest.mark.parametrize("written", ["", "a", "a:", ":1", "[::1]", "a:b", "a:-1", "[]:1", "a b:1", "a/b:1"])
def test_a_property_needs_a_host_and_a_port(written: str) -> None:
    with pytest.raises(NotAnAddress) as raised:
        address_of(written)
    assert not isinstance(raised.value, PortOutOfRange)


@pytest.mark.parametrize("written", ["a:65536", "a:99999999999999999999", "[::1]:70000"])
def test_a_port_has_16_bits(written: str) -> None:
    with pytest.raises(PortOutOfRange):
        address_of(written)


def test_empty_entries_and_spaces_count_for_nothing() -> None:
    assert [str(address) for address in bootstrap_addresses(" a:1 ,, [::1]:2,")] == ["a:1", "[::1]:2"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a:1, b:c", "Invalid url in bootstrap.servers: b:c"),
        (" a:65536", "Invalid port in bootstrap.servers: a:65536"),
        (",", "No resolvable bootstrap urls given in bootstrap.servers"),
    ],
)
def test_texts_are_those_of_the_java_clients(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        bootstrap_addresses(text)
    assert str(raised.value) == said
    with pytest.raises(ValueError, match="Failed to construct") as failed:
        tool_clients.bootstrap_of({"bootstrap.servers": text}, "producer")
    assert str(failed.value) == f"Failed to construct kafka producer: {said}"


@pytest.mark.parametrize(
    ("bootstrap", "status", "said"),
    [
        ("a", 1, "Please provide valid host:port like host1:9091,host2:9092"),
        ("a:1,", 1, "Please provide valid host:port like host1:9091,host2:9092"),
        ("a:1, b:c", 1, "Please provide valid host:port like host1:9091,host2:9092"),
        ("", 1, "Error while validating the bootstrap address"),
        ("a:65536", 1, "Invalid port in bootstrap.servers: a:65536"),
    ],
)
def test_a_console_producer_names_its_address(
    bootstrap: str, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A port that is out of range is refused by the client, after the check that shows the usage."""
    try:
        ended = main(["console-producer", "--topic", "t", "--bootstrap-server", bootstrap])
    except SystemExit as end:
        ended = int(str(end.code))
    assert ended == status
    assert said in capsys.readouterr().err
