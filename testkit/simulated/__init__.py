"""A network, a clock and a loop that follow from a seed."""
