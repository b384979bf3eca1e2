"""Converts a container's environment to a node's configuration: variables and property files in, properties and
complaints out.

The rules are those of the images that Apache Kafka, Confluent and Bitnami publish. Everything here is pure; `pykbroker
in-container` (tools/commands/in_container.py) reads the environment and the disk. Scripts in docker/ call this command.
"""
