"""Lambda entry point of the HTTP API: API Gateway's event in, its answer out."""

from headrace.http.app import handle as handler

__all__ = ["handler"]
