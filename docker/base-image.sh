#!/usr/bin/env bash
# docker/base-image.sh NAME: a base image of Debian's packages, where none can be pulled. Needs root and debootstrap.
set -eu
name=$1
if docker image inspect "$name" >/dev/null 2>&1; then
    echo "image: $name is there"
    exit 0
fi
folder=$(mktemp -d)
log=$(mktemp)
trap 'rm -rf "$folder" "$log"' EXIT
make_base() {
    rm -rf "$folder"
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$folder" >"$log" 2>&1
}
# A mirror may be away for a moment.
make_base || { sleep 5; make_base; } || { tail -n 5 "$log" >&2; exit 1; }
rm -rf "$folder"/var/cache/apt/archives/*.deb "$folder"/var/lib/apt/lists/*
tar -C "$folder" -c . | docker import - "$name" >/dev/null
echo "image: made $name"
