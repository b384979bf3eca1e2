"""Manifests for Kubernetes: a StatefulSet whose pods are brokers and voters, its Services, and the policies that keep
enough of its pods running.

A node's id is its pod's ordinal, from the label apps.kubernetes.io/pod-index (Kubernetes 1.28 and newer). So the
environment alone describes a pod, no shell has to cut the number out of the host's name, and the image's own command
is used. Names of pods are stable and their IP addresses are not, so every address has a name. The names end in `.svc`,
and pods can resolve them for any domain of the Kubernetes cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pykbroker.config.kinds import ConfigError
from pykbroker.config.variables import variable_of
from pykbroker.tools.manifests import checked
from pykbroker.tools.manifests.prometheus import PORT as METRICS_PORT
from pykbroker.tools.manifests.replication import replication_variables
from pykbroker.tools.manifests.secured import (
    ADMIN,
    AUTHORITY_FILE,
    CLIENTS,
    NODE_FILE,
    NODES,
    Security,
    client_as_node,
    secured_keys,
)

BROKER_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
#: The port between brokers of a secured cluster. Without protection they use the port of the clients.
NODES_PORT: Final = 9094
#: The image's own check. It imports only the socket module, so a probe takes a few milliseconds.
HEALTH_CHECK: Final = "/etc/kafka/docker/healthcheck"
#: The folder of the certificates in the containers, and of the passwords in the Job.
_SECRETS: Final = "/etc/kafka/secrets"
_PASSWORDS: Final = "/etc/kafka/users"
_RESTRICTED: Final = """          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
"""
_USER: Final = """      securityContext:
        runAsNonRoot: true
        runAsUser: 1000
        runAsGroup: 1000
        fsGroup: 1000
        fsGroupChangePolicy: OnRootMismatch
        seccompProfile: {type: RuntimeDefault}
"""
#: Each pod is a voter, and an even number survives no more losses than the odd number below it.
REPLICAS: Final = (1, 3, 5)


@dataclass(slots=True, frozen=True, kw_only=True)
class KubernetesCluster:
    """The values of a manifest. Raises ConfigError for a value that cannot be in one."""

    image: str
    name: str = "pykbroker"
    #: None for the namespace of `kubectl apply`
    namespace: str | None = None
    replicas: int = 3
    #: resources of each pod: `cpu` is a request, `memory` is both request and limit
    storage: str = "10Gi"
    cpu: str = "500m"
    memory: str = "512Mi"
    #: None for the default storage class
    storage_class: str | None = None
    #: None for an id that follows from the name and the namespace
    cluster_id: str | None = None
    security: Security = Security.PLAINTEXT

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

    def pod(self, number: int, namespace: str) -> str:
        """Return the name by which nodes and clients reach a pod."""
        return f"{self.name}-{number}.{self.name}-nodes.{namespace}.svc"

    @property
    def has_users(self) -> bool:
        return self.security is Security.SASL_SSL


def kubernetes(cluster: KubernetesCluster) -> str:
    """Return one YAML document for each object."""
    documents = [_head(cluster), _client_service(cluster), _policies(cluster), _stateful_set(cluster)]
    if cluster.has_users:
        documents.insert(3, _users_job(cluster))
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
{_what_a_person_makes(cluster)}
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
{_of_secured(cluster, f"    - {{name: tcp-nodes, port: {NODES_PORT}}}")}\
    - {{name: http-metrics, port: {METRICS_PORT}}}
"""


def _of_secured(cluster: KubernetesCluster, lines: str) -> str:
    """Return these lines for a secured cluster, and an empty text for others."""
    return f"{lines}\n" if cluster.security.is_secured else ""


def _what_a_person_makes(cluster: KubernetesCluster) -> str:
    """Return the comment that names the Secrets which must exist before the pods."""
    if not cluster.security.is_secured:
        return ""
    namespace = cluster.namespace or "NAMESPACE"
    hosts = [
        *(cluster.pod(number, namespace) for number in range(cluster.replicas)),
        *(f"{cluster.name}{end}" for end in ("", f".{namespace}", f".{namespace}.svc")),
    ]
    names = " \\\n".join(f"#       --host {host}" for host in hosts)
    secret = f"#   kubectl -n {namespace} create secret generic {cluster.name}"
    head = f"""#
# Before that a person makes the Secret {cluster.name}-tls. Its key tls-combined.pem has the private key and the
# certificate of the nodes (CN=node, with the names below), ca.crt what nodes and clients trust. These are the keys of a
# Certificate of cert-manager with additionalOutputFormats CombinedPEM. For a trial:
#   pykbroker tls create certificates \\
{names}{" --client admin" if cluster.security is Security.SSL else ""}
{secret}-tls \\
#       --from-file=tls-combined.pem=certificates/node.pem --from-file=ca.crt=certificates/authority.pem
"""
    if cluster.security is Security.SSL:
        return f"""{head}\
# Clients show a certificate of that authority. CN={ADMIN} may do everything, and others what ACLs allow them.
"""
    return f"""{head}\
# and the Secret {cluster.name}-users, which has a password under the name of each user:
#   (umask 077; openssl rand -base64 18 > {ADMIN}.password)
{secret}-users --from-file={ADMIN}={ADMIN}.password
# Clients log in with SASL_SSL and SCRAM-SHA-512. {ADMIN} may do everything, and others what ACLs allow them.
# The Job {cluster.name}-users writes the passwords into the cluster. It goes an hour after its end, and `kubectl apply`
# runs it again.
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
{_who_reaches_it(cluster)}
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
{_between_nodes(cluster)}"""


def _who_reaches_it(cluster: KubernetesCluster) -> str:
    if not cluster.security.is_secured:
        return f"""\
# The controllers' listener is for the pods of the cluster alone. Nothing asks for credentials: each client that reaches
# port {BROKER_PORT} may do everything."""
    return "# The listeners of controllers and between brokers are for the pods of the cluster alone."


def _between_nodes(cluster: KubernetesCluster) -> str:
    if not cluster.security.is_secured:
        return ""
    job = f"\n        - podSelector:\n            matchLabels: {_labels_of_users(cluster)}" if cluster.has_users else ""
    return f"""    - ports: [{{port: {NODES_PORT}}}]
      from:
        - podSelector:
            matchLabels: {_labels(cluster)}{job}
"""


def _labels_of_users(cluster: KubernetesCluster) -> str:
    """Return the labels of the Job's pod. They differ from the nodes' labels, so that no Service selects it."""
    return f"{{app.kubernetes.io/name: pykbroker-users, app.kubernetes.io/instance: {cluster.name}}}"


def _certificates(cluster: KubernetesCluster) -> str:
    """Return the volume with the two files."""
    return f"""        - name: tls
          secret:
            secretName: {cluster.name}-tls
            defaultMode: 0440
            items:
              - {{key: tls-combined.pem, path: {NODE_FILE}}}
              - {{key: ca.crt, path: {AUTHORITY_FILE}}}"""


def _users_job(cluster: KubernetesCluster) -> str:
    # The certificate has the names of pods, so the addresses here must be these names.
    nodes = ",".join(f"{cluster.pod(number, '$(POD_NAMESPACE)')}:{NODES_PORT}" for number in range(cluster.replicas))
    return f"""# It sets the passwords. It shows the certificate of the nodes, which is that of a super user.
apiVersion: batch/v1
kind: Job
{_metadata(cluster, f"{cluster.name}-users")}
spec:
  backoffLimit: 20
  ttlSecondsAfterFinished: 3600
  template:
    metadata:
      labels: {_labels_of_users(cluster)}
    spec:
      restartPolicy: OnFailure
      enableServiceLinks: false
      automountServiceAccountToken: false
{_USER}\
      containers:
        - name: users
          image: "{cluster.image}"
          env:
            - name: POD_NAMESPACE
              valueFrom: {{fieldRef: {{fieldPath: metadata.namespace}}}}
            - {{name: NODES, value: "{nodes}"}}
          command:
            - sh
            - -euc
            - |
              for password in {_PASSWORDS}/*; do
                pykbroker users set "${{password##*/}}" -b "$NODES" \\
                  {client_as_node(_SECRETS)} \\
                  < "$password"
              done
{_RESTRICTED}\
          volumeMounts:
            - {{name: tls, mountPath: {_SECRETS}, readOnly: true}}
            - {{name: users, mountPath: {_PASSWORDS}, readOnly: true}}
            - {{name: tmp, mountPath: /tmp}}
      volumes:
        - {{name: tmp, emptyDir: {{}}}}
{_certificates(cluster)}
        - {{name: users, secret: {{secretName: {cluster.name}-users, defaultMode: 0440}}}}
"""


def _environment(cluster: KubernetesCluster) -> str:
    """Return the variables of a pod. Kubernetes replaces $(NAME) by the value of a variable that is defined above."""
    namespace = "$(POD_NAMESPACE)"
    pod = f"$(POD_NAME).{cluster.name}-nodes.{namespace}.svc"
    voters = (f"{number}@{cluster.pod(number, namespace)}:{CONTROLLER_PORT}" for number in range(cluster.replicas))
    if cluster.security.is_secured:
        listeners = {NODES: NODES_PORT, CLIENTS: BROKER_PORT}
        protocols = secured_keys(cluster.security, _SECRETS)
    else:
        listeners = {"PLAINTEXT": BROKER_PORT}
        protocols = {
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
        }
    everywhere = [f"{name}://:{port}" for name, port in listeners.items()]
    keys = {
        "process.roles": "broker,controller",
        "listeners": ",".join([*everywhere, f"CONTROLLER://:{CONTROLLER_PORT}"]),
        "advertised.listeners": ",".join(f"{name}://{pod}:{port}" for name, port in listeners.items()),
        **protocols,
        "controller.quorum.voters": ",".join(voters),
        "log.dirs": "/var/lib/kafka/data/node",
        "pykbroker.metrics.listener": f"0.0.0.0:{METRICS_PORT}",
    }
    variables = {
        "CLUSTER_ID": checked.cluster_id(cluster.cluster_id, f"{cluster.namespace or ''}/{cluster.name}"),
        **{variable_of(key): text for key, text in keys.items()},
        **replication_variables(cluster.replicas),
    }
    # The profile has this variable for a developer's machine. Here the pods of a consumer group start one after the
    # other, and Apache Kafka's default lets them join in one rebalance.
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
{_USER}\
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
{_of_secured(cluster, f"            - {{name: tcp-nodes, containerPort: {NODES_PORT}}}")}\
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
            exec: {{command: [{HEALTH_CHECK}, --alive]}}
            periodSeconds: 2
            timeoutSeconds: 5
            failureThreshold: 60
          livenessProbe:
            exec: {{command: [{HEALTH_CHECK}, --alive]}}
            periodSeconds: 15
            timeoutSeconds: 5
            failureThreshold: 4
          # Whether it serves clients.
          readinessProbe:
            exec: {{command: [{HEALTH_CHECK}, --node]}}
            periodSeconds: 5
            timeoutSeconds: 5
            failureThreshold: 2
          resources:
            requests: {{cpu: "{cluster.cpu}", memory: "{cluster.memory}"}}
            limits: {{memory: "{cluster.memory}"}}
{_RESTRICTED}\
          volumeMounts:
            - {{name: data, mountPath: /var/lib/kafka/data}}
            - {{name: tmp, mountPath: /tmp}}
{_of_secured(cluster, f"            - {{name: tls, mountPath: {_SECRETS}, readOnly: true}}")}\
      volumes:
        - {{name: tmp, emptyDir: {{}}}}
{_of_secured(cluster, _certificates(cluster))}\
  volumeClaimTemplates:
    - metadata:
        name: data
      spec:
        accessModes: [ReadWriteOnce]{storage_class}
        resources:
          requests: {{storage: "{cluster.storage}"}}
"""
