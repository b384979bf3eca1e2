"""Faults of a simulated cluster: as values, and carried out."""
