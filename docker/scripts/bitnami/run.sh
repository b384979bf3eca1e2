#!/usr/bin/env bash
# The command of Bitnami's image, for compose files that name it.
exec /etc/kafka/docker/run "$@"
