"""Runs scripts against Apache Kafka and pykbroker and prints the differences of the answers.

The arguments of `python compat_tests/differential/run.py`:

- none: print the names of the scripts
- `NAME...`: run these scripts (`all` for every one)
- `NAME --show`: print the requests and answers, too
- `--serve FILE`: start Apache Kafka as needed here, and keep it running
- `NAME --kafka FILE`: compare with that one, in a second instead of ten
- `NAME --kafka FILE --alone FOLDER`: ask only Kafka, write FOLDER/NAME.txt
- `NAME --python FILE`: use the pykbroker of that Python, for example of another working tree
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "wire"), str(ROOT / "log"), str(ROOT / "raft")]

from compat_tests.differential import nodes, transcript  # noqa: E402
from compat_tests.differential.compare import compare, run  # noqa: E402
from compat_tests.differential.scripts import KIND_OF, SCRIPTS  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--kafka", type=Path, metavar="FILE")
    parser.add_argument("--serve", type=Path, metavar="FILE")
    parser.add_argument("--python", default=sys.executable, metavar="FILE")
    parser.add_argument("--alone", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    if options.serve:
        # So that Kafka ends with this process, however this one is ended.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        with nodes.apache_kafka() as kafka:
            options.serve.write_text(json.dumps([kafka.address, kafka.texts]))
            while True:
                time.sleep(60)
    if not options.names:
        print("\n".join(SCRIPTS))
        return 0
    names = list(SCRIPTS) if options.names == ["all"] else options.names
    failed = 0
    suffix = uuid.uuid4().hex[:6] if options.kafka else ""
    if options.alone:
        for kind in sorted({KIND_OF[name] for name in names}):
            with ExitStack() as stack:
                theirs = (
                    _served(options.kafka)
                    if kind == "latest"
                    else stack.enter_context(nodes.apache_kafka(nodes.KINDS[kind]))
                )
                for name in (name for name in names if KIND_OF[name] == kind):
                    steps = run(SCRIPTS[name], theirs, suffix=suffix, wording=True)
                    (options.alone / f"{name}.txt").write_text(transcript.text(steps))
                    print(f"== {name}: {len(steps)} steps")
        return 0
    for kind in sorted({KIND_OF[name] for name in names}):
        with ExitStack() as stack:
            if options.kafka and kind == "latest":
                theirs = _served(options.kafka)
                ours = stack.enter_context(nodes.pykbroker(nodes.KINDS[kind], options.python))
            else:
                theirs, ours = stack.enter_context(nodes.both(nodes.KINDS[kind], options.python))
            for name in (name for name in names if KIND_OF[name] == kind):
                failed += _compared(name, theirs, ours, suffix, options.show)
    return 1 if failed else 0


def _served(file: Path) -> nodes.Side:
    address, texts = json.loads(file.read_text())
    return nodes.Side("Apache Kafka", address, texts)


def _compared(name: str, theirs: nodes.Side, ours: nodes.Side, suffix: str, show: bool) -> bool:
    started = time.monotonic()
    one = run(SCRIPTS[name], theirs, suffix=suffix)
    middle = time.monotonic()
    other = run(SCRIPTS[name], ours, suffix=suffix)
    ended = time.monotonic()
    found = compare(one, other)
    took = f"Kafka {middle - started:.1f} s, pykbroker {ended - middle:.1f} s"
    print(f"== {name}: {len(one)} steps, {took}: {'differs' if found else 'equal'}")
    print("\n".join(found), flush=True)
    if show:
        for step, own in zip(one, other, strict=False):
            print(f"-- {step.title}\n   asked {json.dumps(step.asked, ensure_ascii=False)[:1500]}")
            print(f"   Kafka     {json.dumps(step.answered, ensure_ascii=False)[:3000]}")
            print(f"   pykbroker {json.dumps(own.answered, ensure_ascii=False)[:3000]}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
