"""The layout of a cluster in one process, which its nodes share before they start: ports, directories, first voters.

Responsible for the configurations of the nodes, and for releasing ports and directories. Not responsible for nodes
(cluster.py).
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pykbroker.config.cluster_profile import replicated_profile
from pykbroker.config.start_up import start_config
from pykbroker.config.typed_config import Config
from pykbroker.metadata.restored import Restored
from pykbroker.node.node import Node
from pykbroker.storage.format import format_directories
from pykbroker.testing.handed_out import HandedOut
from pykbroker.testing.internal_topics import SMALL_INTERNAL_TOPICS
from pykbroker.testing.network import HOST, Network
from pykbroker.testing.state_copy import MayLink, copy_settled, copy_tree, new_folder
from pykbroker_log.os_disk.volatile import VolatileDisk
from pykbroker_raft.voters import Endpoint, ReplicaKey, VoterNode, VoterSet
from pykbroker_wire.primitives import random_uuid, uuid_to_str


def cluster_profile(nodes: int) -> dict[str, str]:
    """Return the keys of the nodes, without addresses. With them topics survive the loss of a node, a lost node is
    detected within a few seconds, and internal topics are small."""
    return {
        **replicated_profile(nodes),
        **SMALL_INTERNAL_TOPICS,
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "3000",
        "controller.quorum.election.timeout.ms": "200",
        "controller.quorum.election.backoff.max.ms": "200",
        "controller.quorum.fetch.timeout.ms": "1000",
    }


@dataclass
class ClusterLayout:
    """The directories, the ports of clients and the configurations of the nodes, by their ids.

    `stands`: the node that begins the election of the next start at once. `handed_out`: what clients may have seen.
    `restored`: the limits of nodes that start, if the cluster was put back to an earlier state.
    """

    directories: tempfile.TemporaryDirectory[str]
    ports: Mapping[int, int]
    configs: Mapping[int, Config]
    stands: int | None
    handed_out: HandedOut = field(default_factory=HandedOut)
    restored: Restored | None = None

    def data_dir(self, number: int) -> str:
        return os.path.join(self.directories.name, str(number))

    def copy(self, serving: Mapping[int, Node]) -> str:
        """Copy the directory of each node, and return the path of the copies. The nodes that serve stand still. The
        others do not run, and their directories are copied as they are. Raises OSError."""
        with new_folder(self.directories.name, "snapshot-") as path:
            for number in self.configs:
                copy = os.path.join(path, str(number))
                os.mkdir(copy, 0o700)
                node = serving.get(number)
                if node is not None:
                    copy_settled(node.shared.directories.log_dirs, copy, node.lifecycle.broker_epoch)
                else:
                    copy_tree(self.data_dir(number), os.path.join(copy, "0"))
        return path

    def stage(self, copies: str) -> str:
        """Copy saved directories, for `replace`, and return the path of the copies. Nodes may run. Raises OSError, and
        leaves nothing then."""
        with new_folder(self.directories.name, "staged-") as staged:
            for number in os.listdir(copies):
                copy_tree(os.path.join(copies, number, "0"), os.path.join(staged, number), may_link=MayLink.ALL)
        return staged

    def replace(self, staged: str) -> None:
        """Put directories that were staged in the place of those of the nodes, which do not run. Raises OSError."""
        old = tempfile.mkdtemp(prefix="old-", dir=self.directories.name)
        for name in os.listdir(staged):
            path = self.data_dir(int(name))
            os.rename(path, os.path.join(old, name))
            os.rename(os.path.join(staged, name), path)
        os.rmdir(staged)
        shutil.rmtree(old, ignore_errors=True)


def lay_out(
    properties: Mapping[int, Mapping[str, str]],
    network: Network,
    levels: Mapping[str, int],
    secured: Mapping[str, str] | None = None,
) -> ClusterLayout:
    """Reserve ports and format directories for the nodes of `properties`.

    `levels`: the levels of features with which the cluster begins. `secured`: keys of the listener SECURE, which
    clients then use; nodes use a plain listener of their own. Raises ConfigError or OSError; then nothing is left.
    """
    disk, rng = VolatileDisk(), random.SystemRandom()
    directories = tempfile.TemporaryDirectory(prefix="pykbroker-")
    try:
        clients, controllers = ({number: network.reserve(number) for number in properties} for _ in range(2))
        own = clients if secured is None else {number: network.reserve(number) for number in properties}
        bootstrap = ",".join(f"{HOST}:{port}" for port in controllers.values())
        voters = VoterSet.of(
            VoterNode(ReplicaKey(number, random_uuid(rng)), (Endpoint("CONTROLLER", HOST, port),))
            for number, port in controllers.items()
        )
        cluster_id = uuid_to_str(random_uuid(rng))
        configs = {}
        for number, given in properties.items():
            listeners = f"PLAINTEXT://{HOST}:{own[number]},CONTROLLER://{HOST}:{controllers[number]}"
            config = configs[number] = start_config(
                {
                    **given,
                    **(secured or {}),
                    "process.roles": "broker,controller",
                    "node.id": str(number),
                    "listeners": listeners if secured is None else f"SECURE://{HOST}:{clients[number]},{listeners}",
                    "inter.broker.listener.name": "PLAINTEXT",
                    "controller.listener.names": "CONTROLLER",
                    "controller.quorum.bootstrap.servers": bootstrap,
                    "log.dirs": os.path.join(directories.name, str(number)),
                }
            )
            now_ms = time.time_ns() // 1_000_000
            format_directories(disk, config, cluster_id, rng, now_ms=now_ms, levels=levels, initial_voters=voters)
    except BaseException:
        network.close()
        directories.cleanup()
        raise
    return ClusterLayout(directories, clients, configs, stands=min(properties))
