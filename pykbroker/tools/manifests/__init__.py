"""Texts with which other programs start nodes: manifests for Kubernetes, a Compose file, a unit for systemd.

Values in, text out: one module for each kind, none of which reads a file or an environment. tools/commands/generate.py
is the command. The text has comments, so it is written as text; values are checked first (checked.py), and tests parse
the result.
"""
