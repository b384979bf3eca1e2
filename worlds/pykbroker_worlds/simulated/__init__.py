"""A network, a clock and a loop that follow from a seed, and the nodes and clusters that live there."""
