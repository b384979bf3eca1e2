"""Nodes of this process, of others and of a simulation, and a client that speaks bare protocol."""
