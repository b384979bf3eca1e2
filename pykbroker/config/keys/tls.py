"""Keys of TLS on listeners.

Names, types, defaults and limits are those of Apache Kafka 4.3.1; see table.py.
"""

from __future__ import annotations

from pykbroker.config.kinds import (
    BOOLEAN,
    CLASS,
    LIST,
    LOW,
    MEDIUM,
    PASSWORD,
    PER_BROKER,
    STRING,
    Key,
    ListOf,
    OneOf,
    in_area,
)

KEYS = in_area(
    "TLS",
    Key("ssl.allow.dn.changes", BOOLEAN, False, None, LOW),
    Key("ssl.allow.san.changes", BOOLEAN, False, None, LOW),
    Key("ssl.cipher.suites", LIST, (), ListOf(empty=True), MEDIUM, PER_BROKER),
    Key("ssl.client.auth", STRING, "none", OneOf("required", "requested", "none"), MEDIUM, PER_BROKER),
    Key("ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"), ListOf(empty=True), MEDIUM, PER_BROKER),
    Key("ssl.endpoint.identification.algorithm", STRING, "https", None, LOW, PER_BROKER),
    Key("ssl.engine.factory.class", CLASS, None, None, LOW, PER_BROKER),
    Key("ssl.key.password", PASSWORD, None, None, MEDIUM, PER_BROKER),
    Key("ssl.keymanager.algorithm", STRING, "SunX509", None, MEDIUM, PER_BROKER),
    Key("ssl.keystore.certificate.chain", PASSWORD, None, None, MEDIUM, PER_BROKER),
    Key("ssl.keystore.key", PASSWORD, None, None, MEDIUM, PER_BROKER),
    Key("ssl.keystore.location", STRING, None, None, MEDIUM, PER_BROKER),
    Key("ssl.keystore.password", PASSWORD, None, None, MEDIUM, PER_BROKER),
    Key("ssl.keystore.type", STRING, "JKS", None, MEDIUM, PER_BROKER),
    Key("ssl.principal.mapping.rules", STRING, "DEFAULT", None, LOW),
    Key("ssl.protocol", STRING, "TLSv1.3", None, MEDIUM, PER_BROKER),
    Key("ssl.provider", STRING, None, None, MEDIUM, PER_BROKER),
    Key("ssl.secure.random.implementation", STRING, None, None, LOW, PER_BROKER),
    Key("ssl.trustmanager.algorithm", STRING, "PKIX", None, MEDIUM, PER_BROKER),
    Key("ssl.truststore.certificates", PASSWORD, None, None, MEDIUM, PER_BROKER),
    Key("ssl.truststore.location", STRING, None, None, MEDIUM, PER_BROKER),
    Key("ssl.truststore.password", PASSWORD, None, None, MEDIUM, PER_BROKER),
    Key("ssl.truststore.type", STRING, "JKS", None, MEDIUM, PER_BROKER),
)
