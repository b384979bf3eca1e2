"""`KAFKA_*` and `KAFKA_CFG_*` variables: which become properties, which have no effect, and which ask for a feature
that is not served.

Responsible for the variables alone; not for property files (server_properties.py) nor for missing properties
(single_node.py).

config/variables.py has the names. A value is written into the file unchanged, so a backslash in it has the meaning that
it has in a properties file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pykbroker.config.authorization import ALLOW_IF_NO_ACL, SUPER_USERS
from pykbroker.config.typed_config import is_known
from pykbroker.config.variables import CFG_PREFIX, PREFIX, property_name, variable_of
from pykbroker.tools.container.before_kraft import is_address

#: Variables for the JVM, or for scripts of the images. Nothing in this broker reads them.
NOT_PROPERTIES: Final = frozenset(
    {
        "KAFKA_DATA_DIRS",
        "KAFKA_ENABLE_KRAFT",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_HOME",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_OPTS",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_KRAFT_CLUSTER_ID",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_OPTS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_VERSION",
    }
)
#: Variables of other images that stand for a key of pykbroker, and this key.
OWN_KEYS: Final = {"KAFKA_CREATE_TOPICS": "pykbroker.create.topics"}
SECRETS_FOLDER: Final = "/etc/kafka/secrets/"
#: Variables with the names of stores in that folder, in Apache Kafka's and Confluent's images -> the key for the path.
STORES: Final = {
    "KAFKA_SSL_KEYSTORE_FILENAME": "ssl.keystore.location",
    "KAFKA_SSL_TRUSTSTORE_FILENAME": "ssl.truststore.location",
}
#: Variables with the names of files in that folder, which have one password each -> the key for the password.
CREDENTIALS: Final = {
    "KAFKA_SSL_KEYSTORE_CREDENTIALS": "ssl.keystore.password",
    "KAFKA_SSL_KEY_CREDENTIALS": "ssl.key.password",
    "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "ssl.truststore.password",
}
#: Bitnami's variables for TLS and users, from which its scripts make stores and JAAS lines. They are not served. With
#: _FILE at the end of its name, each variable may also have the path of a file with the value.
BITNAMI_SECRETS: Final = frozenset(
    variable + file
    for variable in (
        "KAFKA_CERTIFICATE_PASSWORD",
        "KAFKA_CLIENT_USERS",
        "KAFKA_CLIENT_PASSWORDS",
        "KAFKA_CONTROLLER_CLIENT_ID",
        "KAFKA_CONTROLLER_CLIENT_SECRET",
        "KAFKA_CONTROLLER_USER",
        "KAFKA_CONTROLLER_PASSWORD",
        "KAFKA_INTER_BROKER_CLIENT_ID",
        "KAFKA_INTER_BROKER_CLIENT_SECRET",
        "KAFKA_INTER_BROKER_USER",
        "KAFKA_INTER_BROKER_PASSWORD",
        "KAFKA_KRAFT_BOOTSTRAP_SCRAM_USERS",
        "KAFKA_TLS_CLIENT_AUTH",
        "KAFKA_TLS_INTER_BROKER_AUTH",
        "KAFKA_TLS_TRUSTSTORE_FILE",
        "KAFKA_TLS_TYPE",
    )
    for file in ("", "_FILE")
)
#: Values with which variables of BITNAMI_SECRETS ask for no protection.
_ASKS_NOTHING: Final = {"KAFKA_TLS_CLIENT_AUTH": "none"}
#: Keys of StandardAuthorizer, which are not in the broker's table.
_AUTHORIZER_KEYS: Final = frozenset({SUPER_USERS, ALLOW_IF_NO_ACL})
#: Keys of protection; `tls.` and `certificate.` are Bitnami's.
_PROTECTION: Final = ("ssl.", "sasl.", "listener.name.", "authorizer.", "tls.", "certificate.")
#: Keys of clients, and misspelt keys in public files, which Apache Kafka's brokers ignore -> the broker's key that is
#: meant. They weaken no protection, because a listener asks for credentials if its protocol requires them. The last key
#: is in files of kafka-ui.
_OF_CLIENTS: Final = {
    "sasl.mechanism": "sasl.enabled.mechanisms",
    "sasl.mechanisms": "sasl.enabled.mechanisms",
    "security.protocol": "listener.security.protocol.map",
    "ssl.enabled.mechanisms": "sasl.enabled.mechanisms",
}
#: Variables that Kubernetes sets in each container of a namespace that has a service called kafka-ssl, kafka-tls and so
#: on.
_OF_KUBERNETES: Final = re.compile(
    r".*_SERVICE_(HOST|PORT|PORT_[A-Z0-9_]+)|.*_PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?"
)
_RACK: Final = "broker.rack"
#: The beginnings of ZooKeeper's keys. The second is for the authorizer whose ACLs were in ZooKeeper.
_ZOOKEEPER: Final = ("zookeeper.", "authorizer.zookeeper.")
_OWN: Final = "pykbroker."
#: Compose files set these keys to an empty value, and the images' scripts remove them. Testcontainers for .NET ends
#: advertised.listeners with a comma, which Apache Kafka accepted until lists refused empty entries (KIP-1161).
_LISTENERS: Final = frozenset({"advertised.listeners", "listeners"})


@dataclass(slots=True, frozen=True)
class Environment:
    """The content of the variables. Texts are as they were written."""

    #: key -> text, in the order of the keys
    properties: Mapping[str, str]
    #: variables that name no key, in order
    unknown: tuple[str, ...]
    #: variables that ask for protection in a way that is not served
    protection: tuple[str, ...]
    #: key -> the file with its value
    credentials: Mapping[str, str]
    #: variables of ZooKeeper, which does not exist here
    zookeeper: tuple[str, ...]
    #: key -> text, the parts of one address from before KRaft (before_kraft.py)
    address: Mapping[str, str]
    cluster_id: str | None

    @property
    def describes_a_node(self) -> bool:
        """True if Apache Kafka's images would drop the packaged defaults. Our own keys do not describe a node."""
        return bool(self.address) or any(not key.startswith(_OWN) for key in self.properties)


def read_environment(variables: Mapping[str, str]) -> Environment:
    """Sort the variables by kind. CLUSTER_ID is the only variable without the prefix `KAFKA_` that is read."""
    properties: dict[str, str] = {}
    unknown: list[str] = []
    protection: list[str] = []
    zookeeper: list[str] = []
    credentials: dict[str, str] = {}
    stores: dict[str, str] = {}
    address: dict[str, str] = {}
    # Variables with CFG_ come first, so that the same variables without it replace them.
    for variable in sorted(variables, key=lambda name: (not name.startswith(CFG_PREFIX), name)):
        if not variable.startswith(PREFIX):
            continue
        text = variables[variable]
        if variable in BITNAMI_SECRETS:
            if text.strip() not in ("", _ASKS_NOTHING.get(variable)):
                protection.append(variable)
        elif variable in STORES:
            if text.strip():
                stores[STORES[variable]] = SECRETS_FOLDER + text.strip()
        elif variable in CREDENTIALS:
            if text.strip():
                credentials[CREDENTIALS[variable]] = SECRETS_FOLDER + text.strip()
        elif variable in NOT_PROPERTIES:
            pass
        elif variable in OWN_KEYS:
            properties[OWN_KEYS[variable]] = text
        else:
            key = property_name(variable)
            if key.startswith(_ZOOKEEPER):
                zookeeper.append(variable)
            elif is_address(key, text):
                address[key] = text.strip()
            elif not is_known(key) and key not in _AUTHORIZER_KEYS:
                # A misspelt key of protection stops the start.
                protects = key.startswith(_PROTECTION) and key not in _OF_CLIENTS
                promises = protects and text.strip() and not _OF_KUBERNETES.fullmatch(variable)
                (protection if promises else unknown).append(variable)
            elif key == _RACK and not text.strip():
                # The text is empty if a node of Kubernetes has no zone. As a value it would put brokers into one rack.
                pass
            elif key in _LISTENERS:
                entries = ",".join(filter(None, map(str.strip, text.split(","))))
                if entries:
                    properties[key] = entries
            else:
                properties[key] = text
    cluster_id = variables.get("CLUSTER_ID", "").strip() or variables.get("KAFKA_KRAFT_CLUSTER_ID", "").strip()
    return Environment(
        dict(sorted({**properties, **stores}.items())),
        tuple(sorted(unknown)),
        tuple(sorted(protection)),
        dict(sorted(credentials.items())),
        tuple(sorted(zookeeper)),
        dict(sorted(address.items())),
        cluster_id or None,
    )


def protection_line(variables: tuple[str, ...]) -> str:
    """Return the line that stops the start. It names variables and never their values, which may be passwords."""
    return (
        f"{', '.join(variables)}: this image gets no protection in this way. Remove "
        f"{'the variable' if len(variables) == 1 else 'these variables'}. docker/README.md names those that work"
    )


def unknown_line(variables: tuple[str, ...], known: Mapping[str, object]) -> str:
    """Return the warning about variables that name no key. For a misspelt variable it has the nearest name of
    `known`."""
    from difflib import get_close_matches

    named = []
    for variable in variables:
        key = property_name(variable)
        near = [_OF_CLIENTS[key]] if key in _OF_CLIENTS else get_close_matches(key, known, 1, 0.9)
        named.append(f"{variable} (is {variable_of(near[0])} meant?)" if near else variable)
    jmx = "; nothing serves JMX here" if any("JMX" in variable for variable in variables) else ""
    return f"These variables name no configuration key and have no effect: {', '.join(named)}{jmx}"
