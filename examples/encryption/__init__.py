"""Payloads that only producers and workers can read."""
