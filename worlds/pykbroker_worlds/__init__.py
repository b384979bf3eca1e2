"""Whole nodes and clusters on virtual time, one seed for everything that happens. See worlds/README.md."""
