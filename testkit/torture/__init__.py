"""Clients that write down what they were answered, and what that proves about a log."""
