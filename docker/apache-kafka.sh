#!/usr/bin/env bash
# docker/apache-kafka.sh BASE TAG [LIBS]: an image with Apache Kafka's jars and Debian's Java on BASE. Without LIBS, a folder
# with the jars, Maven resolves them.
set -eu
cd "$(dirname "$0")/.."
base=$1
tag=$2
libs=${3:-build/apache-kafka/resolved}
context=build/apache-kafka/image

if [ $# -lt 3 ] && [ ! -d "$libs" ]; then
    mvn -q -B -f testkit/oracle/pom.xml dependency:copy-dependencies "-DoutputDirectory=$PWD/$libs.new"
    mv "$libs.new" "$libs"
fi
rm -rf "$context"
mkdir -p "$context"
cp docker/apache-kafka/Dockerfile docker/apache-kafka/run "$context/"
cp -r "$libs" "$context/libs"
# Without BuildKit, which older daemons lack.
DOCKER_BUILDKIT=0 docker build -q --build-arg "BASE=$base" -t "$tag" "$context" >/dev/null
echo "image: $tag on $base"
