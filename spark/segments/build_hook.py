"""Build hook of hatchling for the wheel `pyspark-pykbroker`, which contains the modules that read segments.

The package imports `pykbroker_wire` and `pykbroker_log`, as all code in this checkout does. Pykbroker's wheel has these
packages too, and two distributions must not own the same file. So the modules that the data source imports, and those
that they import, go into the wheel as `pyspark_pykbroker._parts.*`, with their imports changed to that name. The record
loops are compiled for that name as well, if there is a compiler; PYKBROKER_PURE=1 skips that and gives a wheel for
every platform.

Spark imports directly from a wheel that comes by `--py-files`, and Python loads no shared object from an archive. So
`_walk.py`, which is only in the wheel, copies the shared object to a private folder and loads it from there.

Invariant: an import that cannot be changed stops the build.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # for use by hand, without hatchling
    BuildHookInterface = object  # type: ignore[assignment,misc]

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PACKAGE = "pyspark_pykbroker"
PARTS = f"{PACKAGE}._parts"
HOMES = {"pykbroker_wire": ROOT / "wire", "pykbroker_log": ROOT / "log"}
RECORDS = "pykbroker_wire.records"

_IMPORT = re.compile(rf"^(\s*from )((?:{'|'.join(HOMES)})\b[\w.]* import )", re.MULTILINE)

_FROM_ARCHIVE = '''"""Load the compiled record loops out of an archive, from which Python loads no shared object.

Imported only when this package is in an archive: in a folder the shared object comes first.
"""

import os
import sys
import tempfile
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location

try:
    _image = __loader__.get_data(os.path.join(os.path.dirname(__file__), "_walk.abi3.so"))
except (AttributeError, OSError):
    raise ImportError("this archive has no compiled record loops") from None
with tempfile.TemporaryDirectory(prefix="pyspark-pykbroker-") as _folder:  # the map stays when the file is gone
    _path = os.path.join(_folder, "_walk.abi3.so")
    with open(_path, "wb") as _file:
        _file.write(_image)
    _spec = spec_from_file_location(__name__, _path, loader=ExtensionFileLoader(__name__, _path))
    _module = module_from_spec(_spec)
    _spec.loader.exec_module(_module)
    sys.modules[__name__] = _module
'''


def sources() -> dict[str, Path]:
    """Return path in the wheel -> file in the checkout: the package, and the modules of pykbroker that it needs."""
    own = {path.relative_to(HERE).as_posix(): path for path in sorted((HERE / PACKAGE).rglob("*.py"))}
    found = dict(own)
    pending = [each for path in own.values() for each in imported(path)]
    while pending:
        path = pending.pop()
        [home] = [home for home in HOMES.values() if path.is_relative_to(home)]
        target = f"{PARTS.replace('.', '/')}/{path.relative_to(home).as_posix()}"
        if target in found:
            continue
        found[target] = path
        pending += imported(path)
        package = path.parent
        while package != home:  # importing a module also imports its parent packages
            pending.append(package / "__init__.py")
            package = package.parent
    return found


def imported(path: Path) -> list[Path]:
    """Return the modules of pykbroker that this file imports, without those for types only."""
    found: list[Path] = []
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            pending += node.orelse
            continue
        pending += ast.iter_child_nodes(node)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in HOMES:
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                file = module_file(name)
                if file is not None:
                    found.append(file)
    return found


def module_file(name: str) -> Path | None:
    base = HOMES[name.partition(".")[0]].joinpath(*name.split("."))
    return next((path for path in (base / "__init__.py", base.with_suffix(".py")) if path.exists()), None)


def renamed(path: Path) -> str:
    """Return the file with imports of its own copy. Raises ValueError for an import that is written in another way."""
    text = _IMPORT.sub(rf"\g<1>{PARTS}.\g<2>", path.read_text(encoding="utf-8"))
    for node in ast.walk(ast.parse(text)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        if any(name.partition(".")[0] in ("pykbroker", *HOMES) for name in names):
            raise ValueError(f"{path}: {ast.unparse(node)} cannot be changed to {PARTS}")
    return text


def compiling() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compile_walk", ROOT / "wire" / "compile_walk.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(folder: Path) -> str | None:
    """Write the wheel's files into a folder. Return why there is no compiled twin, or None."""
    for target, path in sources().items():
        place = folder / target
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(renamed(path), encoding="utf-8")
    (folder / PARTS.replace(".", "/") / "__init__.py").touch()
    (folder / PACKAGE / "py.typed").touch()
    records = folder / PARTS.replace(".", "/") / RECORDS.replace(".", "/")
    try:
        problem: str | None = compiling().compile_walk(records / "_walk.abi3.so", f"{PARTS}.{RECORDS}")
    except Exception as error:  # noqa: BLE001  # whatever it is, the package works without
        problem = repr(error)
    if problem is None:
        (records / "_walk.py").write_text(_FROM_ARCHIVE, encoding="utf-8")
    return problem


class BuildHook(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"
    _folder: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            raise RuntimeError("only wheels are built: the modules of pykbroker come from the checkout")
        if version == "editable":
            raise RuntimeError(f"in a checkout the package is used as it is: PYTHONPATH={HERE}")
        self._folder = tempfile.TemporaryDirectory()
        root = Path(self._folder.name)
        problem = write(root)
        if problem is None:
            build_data["pure_python"] = False
            build_data["tag"] = compiling().platform_tag()
        else:
            self.app.display_info(f"pyspark-pykbroker: without the compiled record loops ({problem})")
        for path in sorted(root.rglob("*")):
            if path.is_file():
                build_data["force_include"][str(path)] = path.relative_to(root).as_posix()

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._folder is not None:
            self._folder.cleanup()


if __name__ == "__main__":  # `python spark/segments/build_hook.py FOLDER` writes the wheel's files there
    os.makedirs(sys.argv[1], exist_ok=True)
    sys.exit(write(Path(sys.argv[1])))
