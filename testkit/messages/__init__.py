"""Every message of the protocol, with values."""
