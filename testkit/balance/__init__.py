"""Clusters whose load is to be evened out."""
