#!/bin/sh
# Runs once, in the build: the user, the directories, the names on the PATH, and byte code for the base's Python.
set -eu

useradd --uid 1000 --create-home --shell /bin/bash appuser 2>/dev/null || adduser -D -u 1000 -s /bin/bash appuser

# As in Apache Kafka's image and in Confluent's: the user that runs the node may change its scripts and its files, and
# so may any user of the group root (--user 12345:0, as OpenShift has it).
mkdir -p /opt/kafka/config/kraft /etc/kafka/secrets /var/lib/kafka/data /mnt/shared/config /run/pykbroker /usr/logs
# A new named volume gets the owner and the mode of the image's directory at its place: here those of other images' data.
places="/bitnami /kafka /tmp/kraft-combined-logs /tmp/kafka-logs"
mkdir -p /bitnami/kafka/data /bitnami/kafka/config /kafka/data /tmp/kraft-combined-logs /tmp/kafka-logs
# shellcheck disable=SC2086 # words
chown -R appuser:root $places
# shellcheck disable=SC2086 # words
chmod -R u+rwX,g+rwX $places
cp /etc/kafka/docker/server.properties /opt/kafka/config/server.properties
# Where Apache Kafka had them before 4.0.
for name in broker controller server; do ln -s "../$name.properties" "/opt/kafka/config/kraft/$name.properties"; done
# Bitnami's places. Its folder of configuration is one of its own: a file that is mounted there is read and not written.
mkdir -p /opt/bitnami/kafka/config
ln -s /opt/kafka/bin /opt/bitnami/kafka/bin
chmod 0755 /opt/bitnami/scripts/kafka/*
chown -R appuser:root /opt/kafka /etc/kafka /etc/confluent /var/lib/kafka /mnt/shared/config /run/pykbroker /usr/logs
chmod -R u+rwX,g+rwX /opt/kafka /etc/kafka /etc/confluent /var/lib/kafka /mnt/shared/config /usr/logs
chmod 0770 /run/pykbroker
chmod 0755 /etc/kafka/docker/* /etc/confluent/docker/* /opt/kafka/bin/*
chmod 0664 /etc/kafka/docker/server.properties

# Not every `env` blocks signals.
if ! env --block-signal=INT,TERM true 2>/dev/null; then
    sed -i 's/exec env --block-signal=INT,TERM /exec /' /etc/kafka/docker/launch /etc/confluent/docker/launch \
        /opt/kafka/bin/kafka-tool
fi

# One script has all names: kafka-topics in Confluent's image, kafka-topics.sh in Apache Kafka's.
for name in acls broker-api-versions client-metrics cluster configs console-consumer console-producer consumer-groups consumer-perf-test \
    delete-records dump-log e2e-latency features get-offsets groups leader-election log-dirs metadata-quorum producer-perf-test \
    reassign-partitions run-class server-start share-groups server-stop storage topics transactions \
    verifiable-consumer verifiable-producer console-share-consumer delegation-tokens jmx metadata-shell share-consumer-perf-test \
    streams-application-reset streams-groups verifiable-share-consumer; do
    ln -s kafka-tool "/opt/kafka/bin/kafka-$name.sh"
    ln -s kafka-tool "/opt/kafka/bin/kafka-$name"
done
# Their only word is that they are not there.
for name in connect-distributed connect-mirror-maker connect-standalone zookeeper-server-stop zookeeper-shell; do
    ln -s kafka-tool "/opt/kafka/bin/$name.sh"
    ln -s kafka-tool "/opt/kafka/bin/$name"
done
ln -s zookeeper-server-start /opt/kafka/bin/zookeeper-server-start.sh
# Confluent's images have these names; `ub` is from version 8 on.
ln -s cub /opt/kafka/bin/dub
ln -s cub /opt/kafka/bin/ub
# A base's own netcat can do more.
if (PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin; command -v nc >/dev/null); then
    rm /opt/kafka/bin/nc
fi
# Where shells look that have another PATH.
for name in /opt/kafka/bin/*; do
    case $name in *.sh | */kafka-tool) ;; *) ln -s "$name" "/usr/bin/${name##*/}" ;; esac
done
ln -s /opt/pykbroker/bin/pykbroker /usr/bin/pykbroker

# Some bases come without byte code of the standard library, which is most of what a node imports.
python3 - <<'EOF'
import compileall, importlib.util, os, re, sysconfig

library = sysconfig.get_path("stdlib")
if not os.path.exists(importlib.util.cache_from_source(os.path.join(library, "argparse.py"))):
    unused = re.compile(r"/(test|tests|idlelib|lib2to3|ensurepip|turtledemo|tkinter|site-packages|dist-packages|pydoc_data)/")
    compileall.compile_dir(library, quiet=2, rx=unused)
EOF
