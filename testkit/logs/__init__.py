"""Batches and logs for tests."""
