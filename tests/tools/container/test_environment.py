"""Variables and the keys that they name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.config.key_table import STATIC_KEYS
from pykbroker.config.variables import property_name, variable_of
from pykbroker.tools.container.environment import (
    BITNAMI_SECRETS,
    CREDENTIALS,
    NOT_PROPERTIES,
    OWN_KEYS,
    STORES,
    protection_line,
    read_environment,
    unknown_line,
)

NO_KEYS = NOT_PROPERTIES | BITNAMI_SECRETS | STORES.keys() | CREDENTIALS.keys()
variables = st.one_of(
    st.sampled_from([variable_of(key) for key in STATIC_KEYS]),
    st.sampled_from(sorted(NO_KEYS | OWN_KEYS.keys())),
    st.from_regex(r"(KAFKA_|KAFKA_CFG_|KAFKA_ZOOKEEPER_)?[A-Z0-9_]{1,12}", fullmatch=True),
)


@pytest.mark.parametrize("key", STATIC_KEYS)
def test_every_key_has_a_variable(key: str) -> None:
    assert property_name(variable_of(key)) == key


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("KAFKA_LOG_DIRS", "log.dirs"),
        ("KAFKA_CFG_LOG_DIRS", "log.dirs"),
        ("KAFKA_A__B", "a_b"),
        ("KAFKA_A___B", "a-b"),
        ("KAFKA_A____B", "a-.b"),
        ("KAFKA_LISTENER_NAME_CLIENT__X_SSL_KEY", "listener.name.client_x.ssl.key"),
    ],
)
def test_underscores(variable: str, key: str) -> None:
    assert property_name(variable) == key


@pytest.mark.slow
@given(st.dictionaries(variables, st.text(max_size=20)))
def test_every_variable_has_one_meaning_or_none(given_variables: dict[str, str]) -> None:
    found = read_environment(given_variables)
    named = [*found.unknown, *found.protection, *found.zookeeper]
    assert len(named) == len(set(named))
    for variable, text in given_variables.items():
        key = OWN_KEYS.get(variable, property_name(variable))
        if not variable.startswith("KAFKA_"):
            assert variable not in named
        elif (
            variable not in named
            and variable not in NOT_PROPERTIES | BITNAMI_SECRETS | STORES.keys() | CREDENTIALS.keys()
        ):
            blank = not text.replace(",", "").strip() and key in ("listeners", "advertised.listeners")
            blank = blank or (key == "broker.rack" and not text.strip())
            assert blank or key in found.properties
    assert found.properties.keys() <= {
        STORES.get(variable) or OWN_KEYS.get(variable, property_name(variable))
        for variable in given_variables
        if variable.startswith("KAFKA_")
    }


def test_a_variable_without_cfg_wins() -> None:
    both = {"KAFKA_CFG_NUM_PARTITIONS": "2", "KAFKA_NUM_PARTITIONS": "3"}
    assert read_environment(both).properties == {"num.partitions": "3"}
    assert read_environment({"KAFKA_CFG_NUM_PARTITIONS": "2"}).properties == {"num.partitions": "2"}


@pytest.mark.parametrize("variable", ["KAFKA_LISTENERS", "KAFKA_CFG_ADVERTISED_LISTENERS"])
def test_empty_entries_of_listeners_are_dropped(variable: str) -> None:
    key = property_name(variable)
    assert read_environment({variable: "A://a:1, B://b:2,"}).properties == {key: "A://a:1,B://b:2"}
    assert read_environment({variable: " , "}).properties == {}
    # This applies to no other key.
    assert read_environment({"KAFKA_LOG_DIRS": "/a,"}).properties == {"log.dirs": "/a,"}


def test_a_rack_without_a_name_is_none() -> None:
    assert read_environment({"KAFKA_BROKER_RACK": " "}).properties == {}
    assert read_environment({"KAFKA_BROKER_RACK": "a"}).properties == {"broker.rack": "a"}


def test_what_kubernetes_injects_describes_no_node() -> None:
    found = read_environment(
        {
            "KAFKA_PORT": "tcp://10.0.0.1:9092",
            "KAFKA_SERVICE_HOST": "10.0.0.1",
            "KAFKA_PORT_9092_TCP_ADDR": "10.0.0.1",
            "KAFKA_JMX_PORT": "9999",
            "KAFKA_CREATE_TOPICS": "orders:3:1",
        }
    )
    assert not found.describes_a_node
    assert found.properties == {"pykbroker.create.topics": "orders:3:1"}
    assert unknown_line(found.unknown, STATIC_KEYS) == (
        "These variables name no configuration key and have no effect: KAFKA_JMX_PORT, KAFKA_PORT, "
        "KAFKA_PORT_9092_TCP_ADDR, KAFKA_SERVICE_HOST; nothing serves JMX here"
    )


def test_a_service_of_kubernetes_promises_no_protection() -> None:
    """The name of a service may begin like a key that promises protection."""
    variables = {
        "KAFKA_TLS_SERVICE_HOST": "10.0.0.1",
        "KAFKA_TLS_SERVICE_PORT_TLS_CLIENTS": "9093",
        "KAFKA_SSL_PORT": "tcp://10.0.0.1:9093",
        "KAFKA_SSL_PORT_9093_TCP": "tcp://10.0.0.1:9093",
        "KAFKA_SSL_PORT_9093_TCP_ADDR": "10.0.0.1",
    }
    found = read_environment(variables)
    assert (found.protection, found.unknown) == ((), tuple(sorted(variables)))


def test_a_slip_is_named_with_what_is_meant() -> None:
    found = read_environment({"KAFKA_NUM_PARTITION": "3"})
    assert "KAFKA_NUM_PARTITION (is KAFKA_NUM_PARTITIONS meant?)" in unknown_line(found.unknown, STATIC_KEYS)


@pytest.mark.parametrize(
    ("variable", "text"),
    [("KAFKA_CLIENT_PASSWORDS", "secret"), ("KAFKA_TLS_TYPE", "JKS"), ("KAFKA_SSL_NO_SUCH_KEY", "secret"),
     ("KAFKA_LISTENER_NAME_CLIENT_SASL_NONE", "secret"), ("KAFKA_TLS_CLIENT_AUTH", "required"),
     ("KAFKA_TLS_TRUSTSTORE_FILE", "/certificates/trust.jks"), ("KAFKA_TLS_NO_SUCH_KEY", "required"),
     ("KAFKA_CFG_TLS_CLIENT_AUTH", "required"), ("KAFKA_CERTIFICATE_PASSWORD", "secret"),
     ("KAFKA_CERTIFICATE_PASSWORD_FILE", "/run/secrets/password"), ("KAFKA_INTER_BROKER_CLIENT_SECRET", "secret"),
     ("KAFKA_KRAFT_BOOTSTRAP_SCRAM_USERS", "true"), ("KAFKA_AUTHORIZER_CLASS", "StandardAuthorizer")],
)  # fmt: skip
def test_protection_in_a_way_that_is_not_served(variable: str, text: str) -> None:
    found = read_environment({variable: text, "KAFKA_NODE_ID": "1"})
    assert found.protection == (variable,)
    line = protection_line(found.protection)
    assert line.startswith(f"{variable}: this image gets no protection in this way")
    assert text not in line.removeprefix(variable)
    assert found.properties == {"node.id": "1"}
    assert read_environment({variable: " "}).protection == ()


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("KAFKA_SASL_MECHANISM", "KAFKA_SASL_ENABLED_MECHANISMS"),
        ("KAFKA_CFG_SASL_MECHANISMS", "KAFKA_SASL_ENABLED_MECHANISMS"),
        ("KAFKA_SSL_ENABLED_MECHANISMS", "KAFKA_SASL_ENABLED_MECHANISMS"),
        ("KAFKA_SECURITY_PROTOCOL", "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"),
    ],
)
def test_a_key_of_clients_is_named_with_the_brokers_and_stops_nothing(variable: str, meant: str) -> None:
    found = read_environment({variable: "PLAIN"})
    assert (found.protection, found.unknown, found.properties) == ((), (variable,), {})
    assert f"{variable} (is {meant} meant?)" in unknown_line(found.unknown, STATIC_KEYS)


def test_bitnamis_word_for_no_protection() -> None:
    assert read_environment({"KAFKA_TLS_CLIENT_AUTH": "none"}).protection == ()


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("KAFKA_SSL_KEYSTORE_LOCATION", "ssl.keystore.location"),
        ("KAFKA_CFG_SASL_MECHANISM_INTER_BROKER_PROTOCOL", "sasl.mechanism.inter.broker.protocol"),
        ("KAFKA_LISTENER_NAME_CLIENT_SCRAM___SHA___512_SASL_JAAS_CONFIG",
         "listener.name.client.scram-sha-512.sasl.jaas.config"),
        # As in Testcontainers' module for Node.
        ("KAFKA_LISTENER_NAME_SECURE_SCRAM-SHA-512_SASL_JAAS_CONFIG",
         "listener.name.secure.scram-sha-512.sasl.jaas.config"),
        ("KAFKA_AUTHORIZER_CLASS_NAME", "authorizer.class.name"),
        ("KAFKA_SUPER_USERS", "super.users"),
    ],
)  # fmt: skip
def test_protection_that_is_a_property(variable: str, key: str) -> None:
    found = read_environment({variable: "a value"})
    assert (found.properties, found.protection) == ({key: "a value"}, ())


def test_stores_and_credentials_are_files_in_one_folder() -> None:
    found = read_environment({
        "KAFKA_SSL_KEYSTORE_FILENAME": "node.p12", "KAFKA_SSL_KEYSTORE_LOCATION": "/elsewhere",
        "KAFKA_SSL_KEYSTORE_CREDENTIALS": "node.password", "KAFKA_SSL_KEY_CREDENTIALS": "key.password",
        "KAFKA_SSL_TRUSTSTORE_FILENAME": "", "KAFKA_OPTS": "-Djava.security.auth.login.config=/etc/kafka/jaas.conf",
    })  # fmt: skip
    assert found.properties == {"ssl.keystore.location": "/etc/kafka/secrets/node.p12"}
    assert found.credentials == {
        "ssl.keystore.password": "/etc/kafka/secrets/node.password",
        "ssl.key.password": "/etc/kafka/secrets/key.password",
    }
