#!/usr/bin/env bash
# Installs what the tests need beside Python, where this is Debian, we are root and something is missing:
# a JDK and Maven (Apache Kafka itself, its tools, Spark), kcat, Go, Node, Docker and debootstrap (for a base image), and
# starts the Docker daemon. Elsewhere it only says what is missing; tests that need it skip and name it. Ends with 0
# either way. `system.sh java`: these programs alone, and no daemon.
set -u

only=" $* "
missing=()
want() {
    [ "$only" = "  " ] || [[ $only == *" $1 "* ]] || return 0
    command -v "$1" >/dev/null 2>&1 || missing+=("$2")
}
want java default-jdk-headless
want javac default-jdk-headless
want mvn maven
want kcat kcat
want go golang
want node nodejs
want npm npm
want dockerd docker.io
want docker-compose docker-compose
want iptables iptables
want debootstrap debootstrap
python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || missing+=(python3-venv)

start_docker() {
    [ "$only" = "  " ] || return 0
    docker info >/dev/null 2>&1 && return
    if [ "$(id -u)" -ne 0 ] || ! command -v dockerd >/dev/null 2>&1; then
        echo "setup: no Docker daemon answers, and only root can start one"
        return
    fi
    echo "setup: starting the Docker daemon"
    # In a session of its own, with nothing of ours open: it stays when this ends.
    setsid nohup dockerd </dev/null >/var/log/dockerd.log 2>&1 &
    for _ in $(seq 60); do
        docker info >/dev/null 2>&1 && return
        sleep 0.5
    done
    echo "setup: the Docker daemon does not answer: $(tail -n 1 /var/log/dockerd.log)"
}

[ ${#missing[@]} -eq 0 ] && { start_docker; exit 0; }
# shellcheck disable=SC2207 # package names have no spaces
missing=($(printf '%s\n' "${missing[@]}" | sort -u))

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "setup: missing here, and only root on a Debian machine can install it: ${missing[*]}"
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
echo "setup: installing ${missing[*]}"
apt-get -q update </dev/null >/dev/null || echo "setup: apt-get update failed"
for package in "${missing[@]}"; do
    # One by one: a package that is not to be had must not take the others with it.
    apt-get -q -y install --no-install-recommends "$package" </dev/null >/dev/null \
        || echo "setup: $package could not be installed"
done
start_docker
exit 0
