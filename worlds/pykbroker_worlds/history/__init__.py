"""What clients of a simulated cluster did, and what must hold of it."""
