"""Translates Java's names of cipher suites in ssl.cipher.suites to OpenSSL's. Pure, except that it asks OpenSSL which
suites it has.

Python cannot choose among the suites of TLS 1.3, so a list must have all three of them or none. If it has none, TLS 1.3
is off.
"""

from __future__ import annotations

import re
import ssl
from typing import Final

from pykbroker.config.kinds import ConfigError

KEY: Final = "ssl.cipher.suites"
TLS13_SUITES: Final = frozenset({"TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"})
_OLDER: Final = re.compile(
    r"TLS_(?:(ECDHE_ECDSA|ECDHE_RSA|DHE_RSA)|RSA)_WITH_"
    r"(?:AES_(128|256)_(?:(GCM_SHA256|GCM_SHA384)|CBC_(SHA|SHA256|SHA384))|CHACHA20_POLY1305_SHA256)"
)


def restrict(context: ssl.SSLContext, suites: tuple[str, ...], versions: tuple[str, ...]) -> tuple[str, ...]:
    """Let a context use only these suites, and return the versions of TLS that can be used with them. Raises
    ConfigError if that is impossible."""
    newer = [suite for suite in suites if suite in TLS13_SUITES]
    older = [suite for suite in suites if suite not in TLS13_SUITES]
    for suite in older:
        _use(context, _openssl_name(suite), suite)
    if older:
        context.set_ciphers(":".join(map(_openssl_name, older)))
    if newer and len(set(newer)) < len(TLS13_SUITES) and "TLSv1.3" in versions:
        missing = ", ".join(sorted(TLS13_SUITES.difference(newer)))
        raise ConfigError(
            f"{KEY} must have all suites of TLS 1.3 or none. Add {missing}, or remove TLSv1.3 from "
            "ssl.enabled.protocols"
        )
    left = tuple(version for version in versions if (newer if version == "TLSv1.3" else older))
    if not left:
        raise ConfigError(f"{KEY} has no suite for {', '.join(versions)}")
    return left


def _use(context: ssl.SSLContext, name: str, suite: str) -> None:
    try:
        context.set_ciphers(name)
    except ssl.SSLError:
        raise ConfigError(f"{KEY}: OpenSSL does not have {suite} on this machine") from None


def _openssl_name(suite: str) -> str:
    match = _OLDER.fullmatch(suite)
    if match is None:
        raise ConfigError(f"{KEY}: {suite} is not served")
    exchange, bits, counter, chained = match.groups()
    cipher = "CHACHA20-POLY1305" if bits is None else f"AES{bits}-{(counter or chained).replace('_', '-')}"
    return f"{exchange.replace('_', '-')}-{cipher}" if exchange else cipher
