"""One process of a cluster: its parts made, started, and stopped in reverse. No logic of a broker or a controller.

`node` starts and stops, `shared` is what both halves stand on, `broker_half` and `controller_half` are the halves,
`parts` the stack of what was started, `ports` the listening sockets, `quorum_settings` the quorum's share of the
configuration.
"""
