"""Receivers of a queue that is pushed: over the web with FastAPI, and as a Lambda function."""
