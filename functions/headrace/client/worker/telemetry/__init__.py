"""Traces and metrics, each with its optional library: ``headrace[otel]``, ``headrace[prometheus]``.

Nothing here is imported unless asked for.
"""
