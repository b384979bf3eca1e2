"""Build hook of hatchling: compiles the loops over records (`_walk.c`, `_dedupe.c`, `_columns.c`) into one module when
it can, and stays silent when it cannot.

A machine without a C compiler or without Python's headers gets the same package with the Python twin: nothing here may
make an installation fail. `PYKBROKER_PURE=1` skips it, which gives a wheel for every platform.

    python wire/compile_walk.py          compiles into the working tree (what an editable install does too)
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand, without hatchling
    BuildHookInterface = object  # type: ignore[assignment,misc]

FOLDER = Path(__file__).parent / "pykbroker_wire" / "records"
SOURCES = [FOLDER / "_walk.c", FOLDER / "_dedupe.c", FOLDER / "_columns.c"]
TARGET = FOLDER / "_walk.abi3.so"


def compile_walk(target: Path = TARGET, package: str = "pykbroker_wire.records") -> str | None:
    """Compile to `target` for modules that are imported as `package`. None when it worked, otherwise why there is no
    compiled twin."""
    if os.environ.get("PYKBROKER_PURE") == "1":
        return "PYKBROKER_PURE=1"
    if sys.implementation.name != "cpython" or sys.platform == "win32":
        return "neither CPython nor a Unix"
    if hasattr(sys, "abiflags") and "t" in sys.abiflags:
        return "free-threaded builds have no limited API"
    include = sysconfig.get_path("include")
    if not os.path.exists(os.path.join(include, "Python.h")):
        return "no Python.h"
    configured = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    compiler = next((found for found in (configured[:1] + ["cc", "gcc", "clang"]) if shutil.which(found)), None)
    if compiler is None:
        return "no C compiler"
    flags = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
    flags += ["-I", include, f'-DPACKAGE="{package}"']
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        built = os.path.join(folder, target.name)
        command = [compiler, "-O2", "-fPIC", "-std=c99", *flags, *map(str, SOURCES), "-o", built]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)  # noqa: S603  # the compiler of the build
        if done.returncode:
            return f"the compiler failed: {done.stderr[-500:]}"
        os.replace(built, target)  # at once: a process that has the old file mapped keeps it
    return None


def platform_tag() -> str:
    """Return the tag of a wheel with the compiled walk: every CPython from 3.11 on, this platform."""
    return f"cp311-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


class CompileWalk(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        try:
            problem = compile_walk()
        except Exception as error:  # noqa: BLE001  # whatever it is, the package works without
            problem = repr(error)
        if problem is not None:
            TARGET.unlink(missing_ok=True)  # none left over from another build
            self.app.display_info(f"pykbroker: without the compiled record walk ({problem})")
            return
        build_data["pure_python"] = False
        build_data["tag"] = platform_tag()
        build_data["artifacts"].append(f"/{TARGET.relative_to(Path(self.root)).as_posix()}")


if __name__ == "__main__":
    sys.exit(compile_walk())
