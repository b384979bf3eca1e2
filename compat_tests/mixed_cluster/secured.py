"""Settings of nodes of both kinds that authenticate each other: SCRAM between brokers, PLAIN between controllers, and
ACLs.

All traffic between nodes is SASL_SSL. Tests ask through the plain listener, whose user is a super user.
"""

from __future__ import annotations

from testkit.certificates import node_properties
from testkit.nodes.secured_trio import MECHANISM, PLAIN, SCRAM

USERS = [f"--add-scram={MECHANISM}=[name={name},password={name}-secret]" for name in ("node", "alice")]
SETTINGS = {
    **node_properties(),
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SASL_SSL,CONTROLLER:SASL_SSL",
    "inter.broker.listener.name": "BROKERS",
    "sasl.mechanism.inter.broker.protocol": MECHANISM,
    "listener.name.brokers.sasl.enabled.mechanisms": MECHANISM,
    "listener.name.brokers.scram-sha-512.sasl.jaas.config": f'{SCRAM} required username="node" password="node-secret";',
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": f'{PLAIN} required username="controller" '
    'password="controller-secret" user_controller="controller-secret";',
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:node;User:controller;User:ANONYMOUS",
}
#: Topics without configs of their own have a copy on each of three nodes.
REPLICATED = {"default.replication.factor": "3", "min.insync.replicas": "2"}
