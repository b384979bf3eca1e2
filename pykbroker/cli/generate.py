"""`pykbroker generate kubernetes|compose|systemd`: print what other programs start nodes with.

Responsible for the options and for where the text goes; what it says is generate/'s.
"""

from __future__ import annotations

import argparse
import os
import sys
import sysconfig

from pykbroker import __version__
from pykbroker.config.kinds import ConfigError

_IMAGE = f"pykbroker:{__version__}"


def arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)

    kubernetes = kinds.add_parser("kubernetes", help="a StatefulSet, its Services, probes, disruption budget, volumes")
    kubernetes.add_argument("--name", default="pykbroker", help="of the objects (default: pykbroker)")
    kubernetes.add_argument("--namespace", help="of the objects (default: that of kubectl apply)")
    kubernetes.add_argument("--replicas", type=int, default=3, help="brokers that are voters too: 1, 3 (default) or 5")
    kubernetes.add_argument("--storage", default="10Gi", help="of each pod (default: 10Gi)")
    kubernetes.add_argument("--storage-class", metavar="NAME", help="of the volumes (default: the default class)")
    kubernetes.add_argument("--memory", default="512Mi", help="of each pod, page cache included (default: 512Mi)")
    kubernetes.add_argument("--cpu", default="500m", help="what each pod asks for (default: 500m)")
    _of_containers(kubernetes)
    kubernetes.set_defaults(text=_kubernetes)

    compose = kinds.add_parser("compose", help="a Compose file, for docker-compose 1.29 and Compose v2")
    compose.add_argument("--brokers", type=int, default=3, help="three of them are voters too (default: 3)")
    compose.add_argument("--port", type=int, default=9092, help="of the first broker on this machine (default: 9092)")
    compose.add_argument("--host", default="localhost", help="this machine's name for clients (default: localhost)")
    compose.add_argument(
        "--bind", default="127.0.0.1", metavar="ADDRESS", help="where ports are published (default: 127.0.0.1)"
    )
    _of_containers(compose)
    compose.set_defaults(text=_compose)

    systemd = kinds.add_parser("systemd", help="a unit that runs one node with a properties file")
    systemd.add_argument(
        "--properties",
        default="/etc/pykbroker/server.properties",
        metavar="FILE",
        help="of the node (default: /etc/pykbroker/server.properties)",
    )
    systemd.add_argument("--user", default="pykbroker", help="that the node runs as (default: pykbroker)")
    systemd.add_argument(
        "--data",
        action="append",
        metavar="DIRECTORY",
        help="of log.dirs (may be repeated; default: /var/lib/pykbroker)",
    )
    systemd.add_argument("--program", metavar="FILE", help="pykbroker itself (default: the one that runs)")
    systemd.set_defaults(text=_systemd)

    for kind in (kubernetes, compose, systemd):
        kind.add_argument("-o", "--output", metavar="FILE", help="write to FILE, and not to the standard output")


def _of_containers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--image", default=_IMAGE, help=f"of the nodes (default: {_IMAGE})")
    parser.add_argument("--cluster-id", metavar="ID", help="of the cluster (default: the same in each run)")


def run(options: argparse.Namespace) -> int:
    try:
        text: str = options.text(options)
        if options.output is None:
            sys.stdout.write(text)
        else:
            with open(options.output, "w", encoding="utf-8") as file:
                file.write(text)
    except ConfigError as error:
        print(f"pykbroker: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"pykbroker: {options.output or 'standard output'}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def _kubernetes(options: argparse.Namespace) -> str:
    from pykbroker.generate.kubernetes import KubernetesCluster, kubernetes

    return kubernetes(
        KubernetesCluster(
            image=options.image,
            name=options.name,
            namespace=options.namespace,
            replicas=options.replicas,
            storage=options.storage,
            cpu=options.cpu,
            memory=options.memory,
            storage_class=options.storage_class,
            cluster_id=options.cluster_id,
        )
    )


def _compose(options: argparse.Namespace) -> str:
    from pykbroker.generate.compose import ComposeCluster, compose

    return compose(
        ComposeCluster(
            image=options.image,
            brokers=options.brokers,
            port=options.port,
            host=options.host,
            bind=options.bind,
            cluster_id=options.cluster_id,
        )
    )


def _systemd(options: argparse.Namespace) -> str:
    from pykbroker.generate.systemd import SystemdUnit, systemd

    return systemd(
        SystemdUnit(
            program=options.program or os.path.join(sysconfig.get_path("scripts"), "pykbroker"),
            properties=options.properties,
            user=options.user,
            data=tuple(options.data or ("/var/lib/pykbroker",)),
        )
    )
