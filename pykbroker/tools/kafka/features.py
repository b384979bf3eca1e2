"""kafka-features: describe and change the finalized features."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pykbroker.tools.kafka.words import WordParser, add_servers, parsed, with_cluster

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import AskedCluster

_DONE: Final = {"upgrade": "upgraded to", "downgrade": "downgraded to", "disable": "disabled"}


def run(words: Sequence[str]) -> int:
    parser = WordParser(prog="kafka-features", description="This tool manages feature flags in Kafka.")
    add_servers(parser, controllers=True, required=False)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("describe", help="describe what is finalized")
    for name in _DONE:
        verb = verbs.add_parser(name, help=f"{name} features")
        verb.add_argument("--feature", action="append", default=[], metavar="NAME=LEVEL", help="may be repeated")
        if name != "disable":
            verb.add_argument("--metadata", help="the metadata.version, by its name")
        if name != "disable":
            verb.add_argument("--release-version", help="the features of a release")
        if name != "upgrade":
            verb.add_argument("--unsafe", action="store_true", help="also where metadata is lost")
        verb.add_argument("--dry-run", action="store_true", help="only check it")
    mapping = verbs.add_parser("version-mapping", help="the features of a release")
    mapping.add_argument("--release-version", help="the release; without it the newest")
    needs = verbs.add_parser("feature-dependencies", help="what levels of features need")
    needs.add_argument("--feature", action="append", required=True, metavar="NAME=LEVEL", help="may be repeated")
    options = parsed(parser, words)
    try:
        if options.verb == "version-mapping":
            return _print_mapping(options.release_version)
        if options.verb == "feature-dependencies":
            return _print_dependencies(options.feature)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return with_cluster(options, _describe if options.verb == "describe" else _update)


def _describe(cluster: AskedCluster, _: argparse.Namespace) -> int:
    from pykbroker.tools.cluster import finalized

    found, epoch = finalized.described(cluster)
    for feature in found:
        cells = (
            f"Feature: {feature.name:<42}",
            f"SupportedMinVersion: {_level(feature.name, feature.least):<17}",
            f"SupportedMaxVersion: {_level(feature.name, feature.greatest):<17}",
            f"FinalizedVersionLevel: {_level(feature.name, feature.level):<17}",
            f"Epoch: {epoch if epoch >= 0 else '-'}",
        )
        print("".join(cells))
    return 0


def _level(name: str, level: int) -> str:
    from pykbroker.metadata.features import METADATA_VERSION, metadata_version_name

    return metadata_version_name(level) if name == METADATA_VERSION else str(level)


def _update(cluster: AskedCluster, options: argparse.Namespace) -> int:
    from pykbroker.tools.cluster import finalized
    from pykbroker.tools.cluster.finalized import FeatureMove

    levels = levels_of(options)
    move = FeatureMove.UPGRADE
    if options.verb != "upgrade":
        move = FeatureMove.UNSAFE_DOWNGRADE if options.unsafe else FeatureMove.SAFE_DOWNGRADE
    outcome = finalized.update(cluster, levels, move, validate_only=options.dry_run)
    failures = 0
    for name in sorted(levels):
        error = outcome[name]
        level = "" if options.verb == "disable" else f" {levels[name]}"
        if error is None:
            print(f"{name} {'can be' if options.dry_run else 'was'} {_DONE[options.verb]}{level}.")
        else:
            failures += 1
            to = "" if options.verb == "disable" else f" to{level}"
            print(f"{'Can' if options.dry_run else 'Could'} not {options.verb} {name}{to}. {error}")
    if failures:
        print(f"{failures} out of {len(levels)} operation(s) failed.", file=sys.stderr)
    return 1 if failures else 0


def levels_of(options: argparse.Namespace) -> dict[str, int]:
    """Return the levels that the options name. Raises ValueError with Kafka's text."""
    from pykbroker.metadata.features import METADATA_VERSION, metadata_version_level, version_mapping

    release = getattr(options, "release_version", None)
    metadata = getattr(options, "metadata", None)
    if release is not None:
        if metadata is not None or options.feature:
            raise ValueError("Can not specify `release-version` with other feature flags.")
        return version_mapping(release)[1]
    found: dict[str, int] = {}
    if metadata is not None:
        print(" `metadata` flag is deprecated and may be removed in a future release.")
        version_mapping(metadata)
        found[METADATA_VERSION] = metadata_version_level(metadata)
    for written in options.feature:
        name, level = (written, 0) if options.verb == "disable" else _name_and_level(written)
        if name in found:
            raise ValueError(f"Feature {name} was specified more than once.")
        found[name] = level
    if not found:
        raise ValueError(f"You must specify at least one feature to {options.verb}")
    return found


def _name_and_level(text: str) -> tuple[str, int]:
    name, equals, level = (part.strip() for part in text.partition("="))
    if not equals:
        raise ValueError(f"Can't parse feature=level string {text}: equals sign not found.")
    try:
        return name, int(level)
    except ValueError:
        raise ValueError(f"Can't parse feature=level string {text}: unable to parse {level} as a short.") from None


def _print_mapping(release: str | None) -> int:
    from pykbroker.metadata.features import METADATA_VERSION, version_mapping

    name, levels = version_mapping(release)
    for feature, level in levels.items():
        print(f"{feature}={level}" + (f" ({name})" if feature == METADATA_VERSION else ""))
    return 0


def _print_dependencies(written: Sequence[str]) -> int:
    from pykbroker.metadata.features import dependency_lines

    for text in written:
        name, level = _name_and_level(text)
        print(*dependency_lines(name, level), sep="\n")
    return 0
