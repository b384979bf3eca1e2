"""TLS from the ssl.* keys and the stores to the layer below a connection.

A listener gets a `TlsListener`, and a connection that this node makes gets its layer from a `TlsClient`. Both use
tls_layer.py. The other modules do not depend on connections.
"""
