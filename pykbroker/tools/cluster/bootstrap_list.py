"""The addresses that a user gives for the first contact with a cluster: `HOST:PORT`, separated by commas.

Responsible for the one rule of an address, which is that of Apache Kafka's clients, and for the texts of those clients.
Not responsible for the texts of options, nor for the resolution of names.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from pykbroker.config.kinds import ConfigError

_GREATEST_PORT: Final = 65535
_PROTOCOL: Final = r"(?:[0-9a-zA-Z\-%._]*://)?"
_IN_BRACKETS: Final = r"\[([0-9a-zA-Z\-%._:]+)\]"
_HOST: Final = re.compile(rf"{_PROTOCOL}(?:{_IN_BRACKETS}|([0-9a-zA-Z\-%._]+))")
_HOST_BEFORE_A_PORT: Final = re.compile(rf"{_PROTOCOL}(?:{_IN_BRACKETS}|([0-9a-zA-Z\-%._:]+))")


class NotAnAddress(ValueError):
    """The text has no host, or it has no port and needs one."""


class PortOutOfRange(NotAnAddress):
    """The text is HOST:PORT, but no port has this number."""


class Address(NamedTuple):
    """A host, without brackets, and a port. `str` is the form that clients take."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address_of(text: str, default_port: int | None = None) -> Address:
    """Parse `HOST:PORT` or `[IPV6]:PORT`, without the spaces around it. A protocol before `://` has no effect, as in
    Apache Kafka's clients. Raises NotAnAddress.

    `default_port`: the port may be left out. An IPv6 address needs its brackets then, because its last number could be
    a port.
    """
    host, _, port = text.strip().rpartition(":")
    hosts = _HOST_BEFORE_A_PORT
    if default_port is not None:
        hosts = _HOST
        if _HOST.fullmatch(text.strip()):
            host, port = text.strip(), str(default_port)
    found = hosts.fullmatch(host)
    if found is None or re.fullmatch("[0-9]+", port) is None:
        raise NotAnAddress(text)
    digits = port.lstrip("0") or "0"
    # The system would take a greater number for the port that its last 16 bits name.
    if len(digits) > len(str(_GREATEST_PORT)) or int(digits) > _GREATEST_PORT:
        raise PortOutOfRange(text)
    return Address(found[1] or found[2], int(digits))


def bootstrap_addresses(text: str, key: str = "bootstrap.servers") -> list[Address]:
    """Return the addresses of a client's property; empty entries count for nothing. Raises ConfigError with the text of
    Apache Kafka's clients."""
    addresses = []
    for entry in text.split(","):
        if not entry.strip():
            continue
        try:
            addresses.append(address_of(entry))
        except PortOutOfRange:
            raise ConfigError(f"Invalid port in {key}: {entry.strip()}") from None
        except NotAnAddress:
            raise ConfigError(f"Invalid url in {key}: {entry.strip()}") from None
    if not addresses:
        raise ConfigError(f"No resolvable bootstrap urls given in {key}")
    return addresses
