#!/usr/bin/env bash
# The entry point of Bitnami's image, for compose files that name it.
exec "$@"
