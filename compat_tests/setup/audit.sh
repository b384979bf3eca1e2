#!/usr/bin/env bash
# audit.sh SITE-PACKAGES: pip-audit on what is installed there. Exit 0: it knows no holes; 1: it does; 3: not run, whole or
# for some packages.
set -u
home=build/audit
mkdir -p build
[ -x "$home/bin/pip-audit" ] || { "${PYTHON:-python3}" -m venv "$home" && "$home/bin/python" -m pip install -q pip-audit; } \
    || { echo "audit: not run: pip-audit could not be installed"; exit 3; }
found=$(mktemp)
said=$(mktemp)
trap 'rm -f "$found" "$said"' EXIT
"$home/bin/pip-audit" --path "$1" --skip-editable --progress-spinner off -f json -o "$found" 2> "$said"
[ -s "$found" ] || { echo "audit: not run: $(tail -n 1 "$said")"; exit 3; }
# Where its service knows no package, pip-audit calls each one skipped, and says that it knows no holes.
"$home/bin/python" - "$found" <<'END'
import json, sys

with open(sys.argv[1], encoding="utf-8") as file:
    packages = [each for each in json.load(file)["dependencies"] if each["name"] != "pykbroker"]
skipped = [each["name"] for each in packages if "skip_reason" in each]
holes = [(each["name"], each["version"], hole["id"]) for each in packages for hole in each.get("vulns", ())]
for hole in holes:
    print("audit:", *hole)
if skipped:
    print(f"audit: not run for {len(skipped)} of {len(packages)} packages: {', '.join(skipped)}")
sys.exit(1 if holes else 3 if skipped else 0)
END
