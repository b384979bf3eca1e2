"""PLAIN and SCRAM (SASL), both sides, from the configuration to the exchange of a connection.

The exchange is pure (server_authenticator.py, client_authenticator.py). Two modules have its connections and its time:
sasl_connection.py for the clients of a listener, outgoing_login.py for the connections that this node makes.
"""
