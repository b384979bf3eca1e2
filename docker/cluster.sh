#!/usr/bin/env bash
# docker/cluster.sh up|down [KIND] [WORDS...]: the cluster of docker/compose.yaml, or of docker/compose.KIND.yaml, with
# Compose v2 or docker-compose 1.29. `up` ends when every node serves, and prints where clients of this machine find
# them. `down` keeps the volumes; `down KIND -v` removes them. Further words go to Compose.
set -eu
cd "$(dirname "$0")"
verb=${1:-}
kind=${2:-}
shift $(($# < 2 ? $# : 2))
file=compose${kind:+.$kind}.yaml
case $verb in up | down) ;; *) sed -n '2,4s/^# //p' cluster.sh >&2; exit 1 ;; esac
if [ ! -e "$file" ]; then
    echo "cluster: there is no docker/$file; there are:" compose*.yaml >&2
    exit 1
fi
export COMPOSE_PROJECT_NAME=${COMPOSE_PROJECT_NAME:-pykbroker${kind:+-$kind}}
if docker compose version >/dev/null 2>&1; then compose=(docker compose); else compose=(docker-compose); fi
compose+=(-f "$file")

if [ "$verb" = down ]; then
    # A profile's containers go too.
    COMPOSE_PROFILES=${COMPOSE_PROFILES:-four} "${compose[@]}" down "$@"
    exit
fi

"${compose[@]}" up -d "$@"
containers=$("${compose[@]}" ps -aq)
# What is no node has no health check, and is not waited for; but for what has to end before clients come.
health='{{if .State.Health}}{{.State.Health.Status}}{{else if index .Config.Labels "pykbroker.awaited"}}'
health+='{{if and (eq .State.Status "exited") (eq .State.ExitCode 0)}}healthy{{else}}working{{end}}{{else}}healthy{{end}}'
deadline=$((SECONDS + 120))
for container in $containers; do
    until [ "$(docker inspect -f "$health" "$container")" = healthy ]; do
        if [ $SECONDS -ge $deadline ]; then
            docker inspect -f "cluster: {{.Name}} is {{.State.Status}} and $health:" "$container" >&2
            docker logs --tail 5 "$container" >&2
            exit 1
        fi
        sleep 0.2
    done
done
ports='{{range $port, $at := .NetworkSettings.Ports}}{{if eq (print $port) "9092/tcp"}}{{range $at}}{{.HostPort}}{{"\n"}}'
ports+='{{end}}{{end}}{{end}}'
# shellcheck disable=SC2086 # ids have no spaces
docker inspect -f "$ports" $containers | grep . | sort -un |
    sed "s/^/${PYKBROKER_HOST:-localhost}:/" | paste -sd, | sed 's/^/cluster: serves at /'
