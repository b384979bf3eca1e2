"""Work that is tried again: the times at which it is due, and the rests after failures. Pure."""
