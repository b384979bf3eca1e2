"""Manifests for Kubernetes: a StatefulSet whose pods are brokers and voters, its Services, and what keeps it up.

A node's id is its pod's ordinal, from the label apps.kubernetes.io/pod-index (Kubernetes 1.28 and newer): so the
environment alone describes a pod, no shell has to cut the number out of the host's name, and the image's own command
stays. Names of pods are stable, their addresses are not: everything goes by name. The names end in `.svc`, which pods
find whatever the domain of the Kubernetes cluster is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pykbroker.config.kinds import ConfigError
from pykbroker.generate import checked
from pykbroker.generate.replication import replication_variables

BROKER_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
METRICS_PORT: Final = 9404
#: Each pod is a voter: an even number survives no more losses than the odd one below it.
REPLICAS: Final = (1, 3, 5)


@dataclass(slots=True, frozen=True, kw_only=True)
class KubernetesCluster:
    """What a manifest is made of. Raises ConfigError for a value that cannot stand in one."""

    image: str
    name: str = "pykbroker"
    #: None: that of `kubectl apply`
    namespace: str | None = None
    replicas: int = 3
    #: of each pod; cpu is what it asks for, memory is its limit too
    storage: str = "10Gi"
    cpu: str = "500m"
    memory: str = "512Mi"
    #: None: the default class
    storage_class: str | None = None
    #: None: one that follows from the name and the namespace
    cluster_id: str | None = None

    def __post_init__(self) -> None:
        checked.image(self.image)
        checked.name(self.name)
        if self.namespace is not None:
            checked.name(self.namespace)
        if self.replicas not in REPLICAS:
            raise ConfigError(f"{self.replicas} replicas: each is a voter, so there are 1, 3 or 5")
        for amount in (self.storage, self.cpu, self.memory):
            checked.quantity(amount)
        if self.storage_class is not None:
            checked.storage_class(self.storage_class)
        checked.cluster_id(self.cluster_id, "")


def kubernetes(cluster: KubernetesCluster) -> str:
    """One YAML document for each object."""
    documents = (_head(cluster), _client_service(cluster), _policies(cluster), _stateful_set(cluster))
    return "---\n".join(documents)


def _metadata(cluster: KubernetesCluster, name: str) -> str:
    namespace = "" if cluster.namespace is None else f"\n  namespace: {cluster.namespace}"
    return f"""metadata:
  name: {name}{namespace}
  labels: {_labels(cluster)}"""


def _labels(cluster: KubernetesCluster) -> str:
    return f"{{app.kubernetes.io/name: pykbroker, app.kubernetes.io/instance: {cluster.name}}}"


def _head(cluster: KubernetesCluster) -> str:
    name = cluster.name
    return f"""# A Kafka cluster of pykbroker, for Kubernetes 1.28 or newer. Clients: {name}:{BROKER_PORT},
# and from other namespaces {name}.NAMESPACE.svc:{BROKER_PORT}.
#   kubectl apply -f FILE
#   kubectl rollout status statefulset/{name}

# Names of the pods. Voters find each other before any of them is ready.
apiVersion: v1
kind: Service
{_metadata(cluster, f"{name}-nodes")}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {_labels(cluster)}
  ports:
    - {{name: tcp-kafka, port: {BROKER_PORT}}}
    - {{name: tcp-controller, port: {CONTROLLER_PORT}}}
    - {{name: http-metrics, port: {METRICS_PORT}}}
"""


def _client_service(cluster: KubernetesCluster) -> str:
    return f"""# Where clients begin: any pod that serves. It tells them the names of all.
apiVersion: v1
kind: Service
{_metadata(cluster, cluster.name)}
spec:
  selector: {_labels(cluster)}
  ports:
    - {{name: tcp-kafka, port: {BROKER_PORT}, targetPort: tcp-kafka}}
"""


def _policies(cluster: KubernetesCluster) -> str:
    return f"""# Nodes are drained one at a time.
apiVersion: policy/v1
kind: PodDisruptionBudget
{_metadata(cluster, cluster.name)}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {_labels(cluster)}
---
# The controllers' listener is for the pods of the cluster alone. Nothing asks for credentials: each client that reaches
# port {BROKER_PORT} may do everything.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
{_metadata(cluster, cluster.name)}
spec:
  podSelector:
    matchLabels: {_labels(cluster)}
  policyTypes: [Ingress]
  ingress:
    - ports: [{{port: {BROKER_PORT}}}]
    # Prometheus, and no client outside of the Kubernetes cluster.
    - ports: [{{port: {METRICS_PORT}}}]
      from: [{{namespaceSelector: {{}}}}]
    - ports: [{{port: {CONTROLLER_PORT}}}]
      from:
        - podSelector:
            matchLabels: {_labels(cluster)}
"""


def _environment(cluster: KubernetesCluster) -> str:
    """Kubernetes puts $(NAME) in, of a variable that stands above."""
    domain = f"{cluster.name}-nodes.$(POD_NAMESPACE).svc"
    voters = ",".join(
        f"{number}@{cluster.name}-{number}.{domain}:{CONTROLLER_PORT}" for number in range(cluster.replicas)
    )
    variables = {
        "CLUSTER_ID": checked.cluster_id(cluster.cluster_id, f"{cluster.namespace or ''}/{cluster.name}"),
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": f"PLAINTEXT://:{BROKER_PORT},CONTROLLER://:{CONTROLLER_PORT}",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://$(POD_NAME).{domain}:{BROKER_PORT}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": voters,
        "KAFKA_LOG_DIRS": "/var/lib/kafka/data/node",
        "KAFKA_PYKBROKER_METRICS_LISTENER": f"0.0.0.0:{METRICS_PORT}",
        **replication_variables(cluster.replicas),
    }
    # The profile has this variable for a developer's machine. Pods of a consumer group start one after the other, and
    # Apache Kafka's default lets them join in one rebalance.
    del variables["KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS"]
    return "".join(f'            - {{name: {name}, value: "{text}"}}\n' for name, text in variables.items())


def _stateful_set(cluster: KubernetesCluster) -> str:
    storage_class = "" if cluster.storage_class is None else f"\n        storageClassName: {cluster.storage_class}"
    return f"""apiVersion: apps/v1
kind: StatefulSet
{_metadata(cluster, cluster.name)}
spec:
  serviceName: {cluster.name}-nodes
  # Each pod is a voter that the others know by name: another number needs another file.
  replicas: {cluster.replicas}
  # A pod is ready when most voters are there, so none can wait for the one before it.
  podManagementPolicy: Parallel
  # In an update: time for the replicas of a pod to be in sync again before the next one stops.
  minReadySeconds: 15
  selector:
    matchLabels: {_labels(cluster)}
  template:
    metadata:
      labels: {_labels(cluster)}
    spec:
      # Kubernetes makes variables such as KAFKA_PORT for a Service that is named kafka. They look like configuration.
      enableServiceLinks: false
      automountServiceAccountToken: false
      # A controlled shutdown moves leaders and closes logs.
      terminationGracePeriodSeconds: 60
      securityContext:
        runAsNonRoot: true
        runAsUser: 1000
        runAsGroup: 1000
        fsGroup: 1000
        fsGroupChangePolicy: OnRootMismatch
        seccompProfile: {{type: RuntimeDefault}}
      # A machine that is lost takes one replica with it, a zone as few as can be.
      topologySpreadConstraints:
        - topologyKey: kubernetes.io/hostname
          maxSkew: 1
          whenUnsatisfiable: DoNotSchedule
          nodeTaintsPolicy: Honor
          labelSelector:
            matchLabels: {_labels(cluster)}
        - topologyKey: topology.kubernetes.io/zone
          maxSkew: 1
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {_labels(cluster)}
      containers:
        - name: pykbroker
          image: "{cluster.image}"
          ports:
            - {{name: tcp-kafka, containerPort: {BROKER_PORT}}}
            - {{name: tcp-controller, containerPort: {CONTROLLER_PORT}}}
            - {{name: http-metrics, containerPort: {METRICS_PORT}}}
          env:
            # The ordinal of the pod.
            - name: KAFKA_NODE_ID
              valueFrom: {{fieldRef: {{fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}}}
            # The zone of the pod's machine, where Kubernetes copies this label to pods; without it there is no rack.
            - name: KAFKA_BROKER_RACK
              valueFrom: {{fieldRef: {{fieldPath: "metadata.labels['topology.kubernetes.io/zone']"}}}}
            - name: POD_NAME
              valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}
            - name: POD_NAMESPACE
              valueFrom: {{fieldRef: {{fieldPath: metadata.namespace}}}}
{_environment(cluster)}\
          # Whether the process answers at all. A node without a quorum answers: a new start would not help it.
          startupProbe:
            exec: {{command: [pykbroker, health, --alive]}}
            periodSeconds: 2
            timeoutSeconds: 5
            failureThreshold: 60
          livenessProbe:
            exec: {{command: [pykbroker, health, --alive]}}
            periodSeconds: 15
            timeoutSeconds: 5
            failureThreshold: 4
          # Whether it serves clients.
          readinessProbe:
            exec: {{command: [pykbroker, health]}}
            periodSeconds: 5
            timeoutSeconds: 5
            failureThreshold: 2
          resources:
            requests: {{cpu: "{cluster.cpu}", memory: "{cluster.memory}"}}
            limits: {{memory: "{cluster.memory}"}}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {{drop: [ALL]}}
          volumeMounts:
            - {{name: data, mountPath: /var/lib/kafka/data}}
            - {{name: tmp, mountPath: /tmp}}
      volumes:
        - {{name: tmp, emptyDir: {{}}}}
  volumeClaimTemplates:
    - metadata:
        name: data
      spec:
        accessModes: [ReadWriteOnce]{storage_class}
        resources:
          requests: {{storage: "{cluster.storage}"}}
"""
