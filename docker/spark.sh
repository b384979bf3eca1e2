#!/usr/bin/env bash
# docker/spark.sh BASE SPARK_TAG PROMETHEUS_TAG: the images of docker/compose.spark.yaml. PYTHON names a Python that has pip
# and pyspark; Maven resolves the connector of the same version.
set -eu
cd "$(dirname "$0")/.."
base=$1
python=${PYTHON:-python3}
context=build/spark/image

pyspark=$("$python" -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')
version=$("$python" -c 'import pyspark; print(pyspark.__version__)')
wanted=$(docker run --rm --network none "$base" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
rm -rf "$context"
mkdir -p "$context"

jars=build/spark/jars-$version-$(sha256sum docker/spark/pom.xml | cut -c1-12)
if [ ! -d "$jars" ]; then
    mvn -q -B -f docker/spark/pom.xml "-Dspark.version=$version" dependency:copy-dependencies \
        "-DoutputDirectory=$PWD/$jars.new"
    mv "$jars.new" "$jars"
fi
# Versions are those of the Python that the pipeline's tests run with; the newest of what is not there. The second line is
# what the data source for log segments needs.
frozen=$("$python" -m pip freeze)
pinned=()
for name in py4j confluent-kafka delta-spark kafka-python \
    pyarrow crc32c lz4 python-snappy cramjam zstandard; do
    pinned+=("$(grep -i "^$name==" <<<"$frozen" || echo "$name")")
done
wheels=build/spark/wheels-$wanted-$(echo "${pinned[@]}" | sha256sum | cut -c1-12)
if [ ! -d "$wheels" ]; then
    machine=$(uname -m)
    "$python" -m pip download -q -d "$wheels.new" --no-deps --only-binary :all: --python-version "$wanted" \
        --implementation cp --abi "cp${wanted/./}" --abi abi3 --abi none --platform "manylinux_2_28_$machine" \
        --platform "manylinux_2_17_$machine" --platform "manylinux2014_$machine" --platform any "${pinned[@]}"
    mv "$wheels.new" "$wheels"
fi
"$python" -m pip wheel -q --no-deps --disable-pip-version-check -w "$context" spark/
mv "$context"/pykbroker_pipeline-*.whl "$context/pipeline.whl"
# The compiled part of this one is for every CPython of this version and later; where it does not fit, Python reads.
"$python" -m pip wheel -q --no-deps --disable-pip-version-check -w "$context" spark/segments
mv "$context"/pyspark_pykbroker-*.whl "$context/segments.whl"
cp -r docker/spark/Dockerfile docker/spark/metrics.properties docker/spark/history.py \
    docker/spark/pipeline.toml docker/spark/feed.toml spark "$context/"
mv "$context/spark" "$context/pipeline"
cp -rl "$jars" "$context/jars"
cp -rl "$wheels" "$context/wheels"
cp -rl "$pyspark" "$context/pyspark" 2>/dev/null || cp -r "$pyspark" "$context/pyspark"
# Without BuildKit, which older daemons lack.
DOCKER_BUILDKIT=0 docker build -q --build-arg "BASE=$base" -t "$2" "$context" >/dev/null
DOCKER_BUILDKIT=0 docker build -q --build-arg "BASE=$base" -t "$3" docker/prometheus >/dev/null
echo "image: $2 and $3 on $base"
