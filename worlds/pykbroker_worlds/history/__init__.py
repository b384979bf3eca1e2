"""Histories of what clients of a cluster did, and the judges of them."""
