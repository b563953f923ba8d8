"""Sending mail, once for each recipient, whatever happens to the worker."""
