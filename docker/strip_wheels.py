"""strip_wheels.py WHEEL...: rewrite wheels without the symbols of their shared objects, which a node never reads.

Two thirds of an image's Python packages may be symbols. Needs `strip`; without it the wheels stay as they are.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

SHARED_OBJECT = re.compile(r"\.so(\.\d+)*$")


def main(wheels: list[str]) -> int:
    if shutil.which("strip") is None:
        print("image: no `strip` here, so shared objects keep their symbols", file=sys.stderr)
        return 0
    for wheel in map(Path, wheels):
        rewrite(wheel)
    return 0


def rewrite(wheel: Path) -> None:
    """Put a wheel with the same files in the place of this one. The names and modes of its files stay."""
    with zipfile.ZipFile(wheel) as old:
        if not any(SHARED_OBJECT.search(entry.filename) for entry in old.infolist()):
            return
        files = [(entry, old.read(entry)) for entry in old.infolist()]
    files = [(entry, stripped(data) if SHARED_OBJECT.search(entry.filename) else data) for entry, data in files]
    contents = {entry.filename: data for entry, data in files}
    fresh = wheel.with_suffix(".new")
    with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as new:
        for entry, data in files:
            is_record = entry.filename.endswith(".dist-info/RECORD")
            new.writestr(entry, record(data, contents) if is_record else data, zipfile.ZIP_DEFLATED)
    fresh.replace(wheel)


def stripped(data: bytes) -> bytes:
    """Return what is left of a shared object, or all of it if `strip` cannot read it."""
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(data)
        file.flush()
        done = subprocess.run(["strip", "--strip-unneeded", file.name], capture_output=True, check=False)
        return data if done.returncode else Path(file.name).read_bytes()


def record(text: bytes, contents: dict[str, bytes]) -> bytes:
    """RECORD with the digests and sizes of shared objects as they are now."""
    lines = []
    for line in text.decode().splitlines():
        name = line.rsplit(",", 2)[0].strip('"')
        if SHARED_OBJECT.search(name) and name in contents:
            digest = base64.urlsafe_b64encode(hashlib.sha256(contents[name]).digest()).rstrip(b"=").decode()
            line = f"{line.rsplit(',', 2)[0]},sha256={digest},{len(contents[name])}"
        lines.append(line)
    return ("\n".join(lines) + "\n").encode()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
