"""Properties from before KRaft that Kafka no longer has: an address in several keys, and the authorizers of ZooKeeper.

Responsible for converting them if process.roles is not set. If it is set, they have no effect, or stop the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pykbroker.config.kinds import STANDARD_AUTHORIZER, ConfigError

ADVERTISED_HOST: Final = "advertised.host.name"
ADVERTISED_PORT: Final = "advertised.port"
HOST: Final = "host.name"
PORT: Final = "port"
#: The keys of an address. Apache Kafka had them until 3.0, for a broker with one listener.
ADDRESS_KEYS: Final = frozenset({ADVERTISED_HOST, ADVERTISED_PORT, HOST, PORT})
_PORT_KEYS: Final = frozenset({ADVERTISED_PORT, PORT})
_USUAL_PORT: Final = "9092"
#: Authorizers with ACLs in ZooKeeper. StandardAuthorizer applies the same rules, and reads the same keys.
_AUTHORIZERS: Final = frozenset(
    {"kafka.security.auth.SimpleAclAuthorizer", "kafka.security.authorizer.AclAuthorizer"}
)  # fmt: skip
_AUTHORIZER: Final = "authorizer.class.name"


def is_address(key: str, text: str) -> bool:
    """Return True for a part of an address. KAFKA_PORT=tcp://10.0.0.1:9092 is no such part: Kubernetes sets it for a
    service with the name kafka."""
    return key in ADDRESS_KEYS and bool(text.strip()) and (key not in _PORT_KEYS or text.strip().isdecimal())


def listeners_of(
    address: Mapping[str, str], properties: Mapping[str, str], controllers: Iterable[str]
) -> dict[str, str]:
    """Return `listeners` and `advertised.listeners` as Apache Kafka derived them from the parts of an address. Return
    nothing if advertised.listeners is set, because it overrides the parts. `controllers`: listeners that clients do not
    use. Raises ConfigError if the address would apply to several listeners."""
    if not address or properties.get("advertised.listeners", "").strip():
        return {}
    entries = [entry.strip() for entry in properties.get("listeners", "").split(",") if entry.strip()]
    names = {name.upper() for name in controllers}
    own = [entry for entry in entries if entry.partition("://")[0].upper() not in names]
    added = {}
    if not entries:
        own = [f"PLAINTEXT://{_bracketed(address.get(HOST, ''))}:{address.get(PORT, _USUAL_PORT)}"]
        added["listeners"] = own[0]
    elif not address.keys() & {ADVERTISED_HOST, ADVERTISED_PORT}:
        return {}
    if len(own) != 1:
        raise ConfigError(
            f"{ADVERTISED_HOST} and {ADVERTISED_PORT} are the address of one listener, and there are {len(own)}: set "
            "KAFKA_ADVERTISED_LISTENERS"
        )
    name, _, rest = own[0].partition("://")
    host, _, port = rest.rpartition(":")
    host = _bracketed(address.get(ADVERTISED_HOST, "")) or host or "localhost"
    return {**added, "advertised.listeners": f"{name}://{host}:{address.get(ADVERTISED_PORT, port)}"}


def authorizer_of(properties: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the authorizer that replaces an authorizer of ZooKeeper, and the warning. None for other authorizers."""
    named = properties.get(_AUTHORIZER, "").strip()
    if named not in _AUTHORIZERS:
        return None
    return STANDARD_AUTHORIZER, (
        f"{_AUTHORIZER}={named} kept its ACLs in ZooKeeper, which is not there: {STANDARD_AUTHORIZER} takes its place, "
        "and begins without ACLs. super.users and allow.everyone.if.no.acl.found count as they are"
    )


def _bracketed(host: str) -> str:
    host = host.strip()
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
