"""`python wire/generate`: the command.

- `python wire/generate`: schemas -> wire/pykbroker_wire/{messages,stored}, apis.py and the tables of fields
- `python wire/generate --check`: fail when that would change a file
- `python wire/generate schemas --libs DIR`: Apache Kafka's jars in DIR -> schemas
- `python wire/generate schemas --kafka VERSION`: the same for a release, whose jars Maven resolves
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

WIRE = Path(__file__).resolve().parent.parent
CACHE = WIRE.parent / ".cache"
if str(WIRE) not in sys.path:
    sys.path.insert(0, str(WIRE))

from generate import convert, project  # noqa: E402
from generate.schema import SchemaError  # noqa: E402


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python wire/generate")
    parser.add_argument("--check", action="store_true", help="write nothing, fail when something would change")
    commands = parser.add_subparsers(dest="command")
    schemas = commands.add_parser("schemas", help="rewrite wire/schemas from Apache Kafka's jars")
    source = schemas.add_mutually_exclusive_group(required=True)
    source.add_argument("--libs", type=Path, help="the folder with kafka-clients-X.jar and its kind")
    source.add_argument("--kafka", metavar="VERSION", help="a release, whose jars Maven resolves into .cache")
    options = parser.parse_args(arguments)
    if options.command == "schemas":
        libs = options.libs or convert.resolve(options.kafka, CACHE)
        wanted = project.schema_files(convert.convert(libs), convert.kafka_version(libs))
        changed = project.write(WIRE / "schemas", wanted, project.owned_schemas(WIRE / "schemas"), check=options.check)
    else:
        package = WIRE / "pykbroker_wire"
        wanted = project.generated_files(project.load(WIRE / "schemas"))
        changed = project.write(package, wanted, project.owned_sources(package), check=options.check)
    for line in changed:
        print(line)
    if options.check and changed:
        print(f"{len(changed)} files are not what their sources say: run `make generate`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SchemaError as error:
        sys.exit(f"generate: {error}")
