#!/usr/bin/env bash
# docker/build.sh BASE TAG...: wheels for the Python of BASE, then the image, without a network in the build. PYTHON
# names a Python that has pip.
set -eu
cd "$(dirname "$0")/.."
base=$1
shift
python=${PYTHON:-python3}
context=build/image

if ! docker image inspect "$base" >/dev/null 2>&1 && ! docker pull -q "$base"; then
    echo "image: the base $base is neither here nor to be pulled: \`make base-image\` makes one, then" \
        "\`make image BASE=pykbroker-base\`" >&2
    exit 1
fi
wanted=$(docker run --rm --network none "$base" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')

mkdir -p "$context"
rm -rf "$context/scripts" "$context/dist" "$context/wheels.new"
# The package itself: its compiled part is for every CPython of this version and later.
"$python" -m pip wheel -q --no-deps -w "$context/dist" .
# What it needs, for the base's Python; once for each list of wheels.
mkdir -p "$context/wheels"
marker="$context/wheels/.for-$wanted-$(cat pyproject.toml docker/strip_wheels.py | sha256sum | cut -c1-16)"
if [ ! -e "$marker" ]; then
    rm -rf "$context/wheels"
    mkdir -p "$context/wheels"
    machine=$(uname -m)
    "$python" -m pip download -q -d "$context/wheels" --only-binary :all: --python-version "$wanted" \
        --implementation cp --abi "cp${wanted/./}" --abi abi3 --abi none \
        --platform "manylinux_2_28_$machine" --platform "manylinux_2_27_$machine" --platform "manylinux_2_17_$machine" \
        --platform "manylinux2014_$machine" --platform "linux_$machine" --platform any "$(echo "$context"/dist/pykbroker-*.whl)[tools]"
    "$python" docker/strip_wheels.py "$context"/wheels/*.whl
    touch "$marker"
fi
rm -f "$context"/wheels/pykbroker-*.whl
cp "$context"/dist/pykbroker-*.whl "$context/wheels/"
"$python" docker/strip_wheels.py "$context"/wheels/pykbroker-*.whl
cp -r docker/scripts "$context/scripts"
cp docker/Dockerfile docker/install.sh "$context/"

tags=()
for tag in "$@"; do tags+=(-t "$tag"); done
# Without BuildKit, which older daemons lack.
build=$(date +%s)-$$
DOCKER_BUILDKIT=0 docker build -q --network none --build-arg "BASE=$base" --build-arg "BUILD=$build" "${tags[@]}" "$context" \
    >"$context/id"
# Its first stage, which would stay as an image without a name.
docker image prune -f --filter "label=pykbroker.build=$build" >/dev/null
echo "image: $* on $base"
