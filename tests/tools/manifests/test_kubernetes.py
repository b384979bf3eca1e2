"""Manifests: Kubernetes' own schemas accept them, and the image makes a valid node from each pod's environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import load
from pykbroker.config.protection import refuse
from pykbroker.config.typed_config import Config
from pykbroker.tools.container.server_properties import server_properties
from pykbroker.tools.manifests.kubernetes import KubernetesCluster, kubernetes
from pykbroker.tools.manifests.secured import Security
from testkit.image_environments import DEFAULTS

DEFAULT = KubernetesCluster(image="pykbroker:1.2.3")
CLUSTERS = {
    "defaults": DEFAULT,
    "one": KubernetesCluster(image="registry:5000/a/b@sha256:00ff", replicas=1, name="k", storage="1Ti", memory="64M"),
    "five": KubernetesCluster(
        image="i", replicas=5, name="kafka", namespace="shop", storage_class="fast.ssd", cpu="2", cluster_id="A" * 22
    ),
}
SECURED = {
    security.value: KubernetesCluster(image="i", namespace="shop", name="k", security=security)
    for security in (Security.SSL, Security.SASL_SSL)
}
CLUSTERS |= SECURED
each_cluster = pytest.mark.parametrize("cluster", CLUSTERS.values(), ids=CLUSTERS)
CHECK = Path(__file__).parents[3] / "docker" / "scripts" / "kafka" / "healthcheck"
#: The oldest version with pods' ordinals as a label, and the newest that the schemas have.
VERSIONS = ("1.28", kubernetes_validate.latest_version())

Object = dict[str, Any]


def objects(cluster: KubernetesCluster) -> dict[tuple[str, str], Object]:
    """Return kind and name -> object."""
    found = list(yaml.safe_load_all(kubernetes(cluster)))
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def stateful_set(cluster: KubernetesCluster) -> Object:
    spec: Object = objects(cluster)["StatefulSet", cluster.name]["spec"]
    return spec


def container(cluster: KubernetesCluster) -> Object:
    (found,) = stateful_set(cluster)["template"]["spec"]["containers"]
    return dict(found)


def environment(cluster: KubernetesCluster, ordinal: int, namespace: str, zone: str = "") -> dict[str, str]:
    """Return a pod's variables, as the kubelet makes them: from top to bottom, with $(NAME) only of variables above."""
    pod = {
        "metadata.labels['apps.kubernetes.io/pod-index']": str(ordinal),
        "metadata.labels['topology.kubernetes.io/zone']": zone,
        "metadata.name": f"{cluster.name}-{ordinal}",
        "metadata.namespace": namespace,
    }
    found: dict[str, str] = {}
    for entry in container(cluster)["env"]:
        if "value" in entry:
            text = re.sub(r"\$\((\w+)\)", lambda match: found.get(match[1], match[0]), entry["value"])
        else:
            text = pod[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        assert entry["name"] not in found
        found[entry["name"]] = text
    return found


def config_of(variables: Mapping[str, str]) -> tuple[Config, str | None]:
    composed = server_properties(variables, mounted=None, defaults=DEFAULTS, hostname="a-pod")
    assert composed.warnings == ()
    refuse(composed.properties)
    return load(composed.properties), composed.cluster_id


@each_cluster
@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_every_object(cluster: KubernetesCluster, version: str) -> None:
    found = objects(cluster)
    assert sorted(kind for kind, _ in found) == [
        *(["Job"] if cluster.security is Security.SASL_SSL else []),
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Service",
        "Service",
        "StatefulSet",
    ]
    for each in found.values():
        kubernetes_validate.validate(each, version, strict=True)


def test_the_schemas_refuse_a_key_that_is_not_there() -> None:
    wrong = objects(DEFAULT)["StatefulSet", "pykbroker"]
    wrong["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


@each_cluster
def test_the_image_makes_a_node_of_each_pods_environment(cluster: KubernetesCluster) -> None:
    namespace = cluster.namespace or "elsewhere"
    ids = set()
    for ordinal in range(cluster.replicas):
        config, cluster_id = config_of(environment(cluster, ordinal, namespace))
        ids.add(cluster_id)
        assert (config.node_id, config.is_broker, config.is_controller) == (ordinal, True, True)
        name = f"{cluster.name}-{ordinal}.{cluster.name}-nodes.{namespace}.svc"
        *between, advertised = config.listeners.advertised_broker
        assert (advertised.host, advertised.port) == (name, 9092)
        own = [(name, 9094)] if cluster in SECURED.values() else []
        assert [(point.host, point.port) for point in between] == own
        assert [(point.host, point.port) for point in config.listeners.controller] == [("", 9093)]
        assert config.voters[ordinal] == (name, 9093)
        assert sorted(config.voters) == list(range(cluster.replicas))
        replicas, least = (1, 1) if cluster.replicas == 1 else (3, 2)
        assert config.int("default.replication.factor") == replicas
        assert config.int("offsets.topic.replication.factor") == replicas
        assert config.int("transaction.state.log.min.isr") == least
        assert config.int("min.insync.replicas") == least
    assert len(ids) == 1
    assert len(ids.pop() or "") == 22


def test_the_zone_of_a_pod_is_the_rack_of_its_broker() -> None:
    config, _ = config_of(environment(DEFAULT, 0, "n", zone="eu-1a"))
    assert config.optional_str("broker.rack") == "eu-1a"
    # Kubernetes gives an empty text for a missing label.
    assert config_of(environment(DEFAULT, 0, "n"))[0].optional_str("broker.rack") is None


def test_prometheus_of_the_same_kubernetes_cluster_reads_the_metrics() -> None:
    config, _ = config_of(environment(DEFAULT, 0, "n"))
    assert config.optional_str("pykbroker.metrics.listener") == "0.0.0.0:9404"
    assert {"name": "http-metrics", "containerPort": 9404} in container(DEFAULT)["ports"]
    ingress = objects(DEFAULT)["NetworkPolicy", "pykbroker"]["spec"]["ingress"]
    assert {"ports": [{"port": 9404}], "from": [{"namespaceSelector": {}}]} in ingress


def test_a_pod_that_is_no_voter_does_not_start() -> None:
    """`kubectl scale` made it, and the others would not count it."""
    with pytest.raises(ConfigError, match=r"controller\.quorum\.voters"):
        config_of(environment(DEFAULT, 3, "n"))


@each_cluster
def test_what_belongs_together_has_one_name(cluster: KubernetesCluster) -> None:
    found = objects(cluster)
    spec = stateful_set(cluster)
    pod = spec["template"]
    labels = pod["metadata"]["labels"]
    nodes, clients = (found["Service", f"{cluster.name}{end}"] for end in ("-nodes", ""))
    assert spec["serviceName"] == nodes["metadata"]["name"]
    assert (nodes["spec"]["clusterIP"], nodes["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert "publishNotReadyAddresses" not in clients["spec"]
    policy = found["NetworkPolicy", cluster.name]["spec"]
    spreads = pod["spec"]["topologySpreadConstraints"]
    selectors = [
        nodes["spec"]["selector"],
        clients["spec"]["selector"],
        spec["selector"]["matchLabels"],
        found["PodDisruptionBudget", cluster.name]["spec"]["selector"]["matchLabels"],
        policy["podSelector"]["matchLabels"],
        policy["ingress"][2]["from"][0]["podSelector"]["matchLabels"],
        *(spread["labelSelector"]["matchLabels"] for spread in spreads),
    ]
    assert selectors == [labels] * 8
    assert {each["metadata"].get("namespace") for each in found.values()} == {cluster.namespace}
    listening = {port["name"]: port["containerPort"] for port in container(cluster)["ports"]}
    assert listening == {port["name"]: port["port"] for port in nodes["spec"]["ports"]}
    assert ("tcp-nodes" in listening) is (cluster in SECURED.values())
    assert [listening[port["targetPort"]] for port in clients["spec"]["ports"]] == [9092]
    (claim,) = spec["volumeClaimTemplates"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container(cluster)["volumeMounts"]}
    assert mounts[claim["metadata"]["name"]] == "/var/lib/kafka/data"
    assert environment(cluster, 0, "n")["KAFKA_LOG_DIRS"].startswith("/var/lib/kafka/data/")
    assert claim["spec"]["resources"]["requests"]["storage"] == cluster.storage
    assert claim["spec"].get("storageClassName") == cluster.storage_class


def test_what_keeps_the_cluster_up() -> None:
    spec = stateful_set(DEFAULT)
    # If voters started one after the other, they would wait for each other without end.
    assert (spec["replicas"], spec["podManagementPolicy"]) == (3, "Parallel")
    assert objects(DEFAULT)["PodDisruptionBudget", "pykbroker"]["spec"]["maxUnavailable"] == 1
    assert spec["template"]["spec"]["enableServiceLinks"] is False
    assert spec["template"]["spec"]["securityContext"]["runAsNonRoot"] is True
    assert spec["template"]["spec"]["securityContext"]["runAsGroup"] == 1000
    assert container(DEFAULT)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "command" not in container(DEFAULT), "the image's own"


@pytest.mark.parametrize("cluster", SECURED.values(), ids=SECURED)
def test_a_secured_manifest_leaves_no_listener_without_tls(cluster: KubernetesCluster) -> None:
    given = environment(cluster, 0, "shop")
    protocols = dict(pair.split(":") for pair in given["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))
    assert protocols == {"CONTROLLER": "SSL", "NODES": "SSL", "CLIENTS": cluster.security.name}
    listeners = [pair.partition(":")[0] for pair in given["KAFKA_LISTENERS"].split(",")]
    assert listeners == ["NODES", "CLIENTS", "CONTROLLER"]
    assert given["KAFKA_INTER_BROKER_LISTENER_NAME"] == "NODES"
    for name in ("CONTROLLER", "NODES", *(["CLIENTS"] if cluster.security is Security.SSL else [])):
        assert given[f"KAFKA_LISTENER_NAME_{name}_SSL_CLIENT_AUTH"] == "required"
    ingress = objects(cluster)["NetworkPolicy", "k"]["spec"]["ingress"]
    # Only pods of the cluster, and the Job that sets passwords, reach the listeners between nodes.
    allowed = {rule["ports"][0]["port"]: rule.get("from") for rule in ingress}
    assert sorted(allowed) == [9092, 9093, 9094, 9404]
    labels = stateful_set(cluster)["template"]["metadata"]["labels"]
    assert allowed[9093] == [{"podSelector": {"matchLabels": labels}}]
    assert allowed[9094][0] == {"podSelector": {"matchLabels": labels}}


@pytest.mark.parametrize("cluster", SECURED.values(), ids=SECURED)
def test_keys_and_passwords_are_in_secrets_that_a_person_makes(cluster: KubernetesCluster) -> None:
    pod = stateful_set(cluster)["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    items = {item["key"]: item["path"] for item in volumes["tls"]["secret"]["items"]}
    assert volumes["tls"]["secret"]["secretName"] == "k-tls"
    # cert-manager's names, and those that `pykbroker tls create` writes.
    assert items == {"tls-combined.pem": "node.pem", "ca.crt": "authority.pem"}
    mounts = {mount["name"]: mount["mountPath"] for mount in container(cluster)["volumeMounts"]}
    given = environment(cluster, 0, "shop")
    assert given["KAFKA_SSL_KEYSTORE_LOCATION"] == f"{mounts['tls']}/node.pem"
    assert given["KAFKA_SSL_TRUSTSTORE_LOCATION"] == f"{mounts['tls']}/authority.pem"
    text = kubernetes(cluster)
    # The certificate must name each pod, because clients connect to these names.
    for name in ("k-0.k-nodes.shop.svc", "k-2.k-nodes.shop.svc", "k", "k.shop.svc"):
        assert f"#       --host {name}" in text
    assert "create secret generic k-tls" in text
    assert ("create secret generic k-users" in text) is (cluster.security is Security.SASL_SSL)


def test_the_job_of_the_users_is_no_node() -> None:
    cluster = SECURED["sasl_ssl"]
    found = objects(cluster)
    job = found["Job", "k-users"]["spec"]["template"]
    nodes = found["Service", "k"]["spec"]["selector"]
    assert not nodes.items() <= job["metadata"]["labels"].items(), "no client is sent to it"
    allowed = found["NetworkPolicy", "k"]["spec"]["ingress"][-1]
    assert allowed["from"][1]["podSelector"]["matchLabels"] == job["metadata"]["labels"]
    assert allowed["ports"] == [{"port": 9094}]
    (users,) = job["spec"]["containers"]
    assert users["env"][1]["value"].split(",")[2] == "k-2.k-nodes.$(POD_NAMESPACE).svc:9094"
    assert users["securityContext"]["readOnlyRootFilesystem"] is True


def test_probes_run_the_images_lean_check() -> None:
    commands = {
        name: container(DEFAULT)[f"{name}Probe"]["exec"]["command"] for name in ("startup", "liveness", "readiness")
    }
    assert {command[0] for command in commands.values()} == {"/etc/kafka/docker/healthcheck"}
    assert CHECK.stat().st_mode & 0o111
    assert "healthcheck [--node | --alive]" in CHECK.read_text()
    asked = {name: command[1:] for name, command in commands.items()}
    assert asked == {"startup": ["--alive"], "liveness": ["--alive"], "readiness": ["--node"]}


def test_a_second_run_names_the_same_cluster() -> None:
    """Volumes are formatted for it, so another id would stop the pods."""

    def cluster_id(**more: Any) -> str:
        return environment(KubernetesCluster(image="i", **more), 0, "n")["CLUSTER_ID"]

    assert cluster_id() == cluster_id()
    assert len({cluster_id(), cluster_id(name="other"), cluster_id(namespace="other")}) == 3
    assert cluster_id(cluster_id="B" * 22) == "B" * 22


@pytest.mark.parametrize(
    "wrong",
    [
        {"image": "a b"},
        {"image": '"'},
        {"image": ""},
        {"image": "a\nb"},
        {"name": "Kafka"},
        {"name": "1"},
        {"name": "a" * 51},
        {"namespace": "a.b"},
        {"replicas": 2},
        {"replicas": 0},
        {"storage": "10 Gi"},
        {"storage": "0Gi"},
        {"memory": "much"},
        {"cpu": "-1"},
        {"storage_class": "{}"},
        {"cluster_id": "short"},
    ],
)
def test_a_value_that_cannot_stand_there_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        KubernetesCluster(**{"image": "i", **wrong})
    assert "\n" not in str(refused.value)
