"""One process of a cluster: it makes its parts, starts them, and stops them in reverse. No logic of a broker or a
controller.

`node` starts and stops the parts, `shared` is the base of both halves, and `broker_half` and `controller_half` are the
halves. `parts` is the stack of started parts, `ports` has the listening sockets, and `quorum_settings` makes the
settings of the quorum from the configuration.
"""
