"""The HTTP API: bodies in, use cases, answers out."""
