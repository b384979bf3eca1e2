"""Texts by which other programs start nodes: manifests for Kubernetes, a Compose file, a unit for systemd.

Values in, text out: one module for each kind, nothing reads a file or an environment. tools/commands/generate.py is the
verb. The text has comments, so it is written as text; what goes into it is checked first (checked.py), and tests read
it back.
"""
