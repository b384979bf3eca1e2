"""Environments that public compose files and testcontainers modules give to a container."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

DEFAULTS = (Path(__file__).parents[1] / "docker" / "scripts" / "kafka" / "server.properties").read_text()

_TC_PYTHON = {
    "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:32768,BROKER://172.17.0.2:9092",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_BROKER_ID": "1",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "10000000",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
}
_KRAFT = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
}

#: The module adds the comma at the end.
_TC_DOTNET = {
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_LISTENERS": "PLAINTEXT://:9092,BROKER://:9093,CONTROLLER://:9094",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:32768,BROKER://172.17.0.2:9093,",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_BROKER_ID": "1",
    "KAFKA_NODE_ID": "1",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9223372036854775807",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
}

#: The meaning of each: (broker listeners by name, port of the controller's listener or None)
ENVIRONMENTS: Mapping[str, Mapping[str, str]] = {
    "nothing": {},
    "testcontainers-python, ZooKeeper mode": {**_TC_PYTHON, "KAFKA_ZOOKEEPER_CONNECT": "localhost:2181"},
    "testcontainers-python, KRaft": {
        **_TC_PYTHON,
        **_KRAFT,
        "CLUSTER_ID": "MkU3OEVBNTcwNTJENDM2Qk",
        "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092,CONTROLLER://0.0.0.0:9094",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
    },
    "testcontainers-java": {
        **_KRAFT,
        "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
        "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,BROKER://0.0.0.0:9093,CONTROLLER://0.0.0.0:9094",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:32768,BROKER://4b1d0c0c4f5e:9093",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
        "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9223372036854775807",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    },
    "testcontainers-dotnet, ZooKeeper mode": {**_TC_DOTNET, "KAFKA_ZOOKEEPER_CONNECT": "localhost:2181"},
    "testcontainers-dotnet, KRaft": {
        **_TC_DOTNET,
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_PROCESS_ROLES": "broker,controller",
    },
    "compose, one node": {
        **_KRAFT,
        "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT_HOST://localhost:9092,PLAINTEXT://broker:19092",
        "KAFKA_LISTENERS": "CONTROLLER://:29093,PLAINTEXT_HOST://:9092,PLAINTEXT://:19092",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@broker:29093",
        "KAFKA_LOG_DIRS": "/tmp/kraft-combined-logs",
    },
    "compose, a controller of three": {
        **_KRAFT,
        "KAFKA_PROCESS_ROLES": "controller",
        "KAFKA_LISTENERS": "CONTROLLER://:9093",
        "KAFKA_ADVERTISED_LISTENERS": "",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@controller-1:9093,2@controller-2:9093,3@controller-3:9093",
        "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    },
    "compose, a broker beside controllers": {
        "KAFKA_NODE_ID": "4",
        "KAFKA_PROCESS_ROLES": "broker",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka-1:19092,PLAINTEXT_HOST://localhost:29092",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@controller-1:9093,2@controller-2:9093,3@controller-3:9093",
        "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    },
    "Bitnami": {
        "KAFKA_KRAFT_CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
        "KAFKA_ENABLE_KRAFT": "yes",
        "KAFKA_CFG_NODE_ID": "0",
        "KAFKA_CFG_PROCESS_ROLES": "controller,broker",
        "KAFKA_CFG_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_CFG_CONTROLLER_QUORUM_VOTERS": "0@kafka:9093",
        "KAFKA_CFG_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "ALLOW_PLAINTEXT_LISTENER": "yes",
    },
    "one key that somebody sets": {"KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false"},
    "ZooKeeper-style compose": {
        "KAFKA_BROKER_ID": "7",
        "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092,PLAINTEXT_HOST://localhost:29092",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
    },
    "wurstmeister, one address in parts": {
        "KAFKA_ADVERTISED_HOST_NAME": "192.168.99.100",
        "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181",
    },
    "ZooKeeper-style, TLS without a map": {
        "KAFKA_BROKER_ID": "1",
        "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181",
        "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,SSL://0.0.0.0:9093",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092,SSL://localhost:9093",
        "KAFKA_SSL_KEYSTORE_LOCATION": "/etc/kafka/secrets/node.p12",
    },
    "ZooKeeper-style, ACLs": {
        "KAFKA_BROKER_ID": "1",
        "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092",
        "KAFKA_AUTHORIZER_CLASS_NAME": "kafka.security.authorizer.AclAuthorizer",
        "KAFKA_AUTHORIZER_ZOOKEEPER_URL": "zookeeper:2181",
        "KAFKA_SUPER_USERS": "User:admin",
    },
}
