"""Headrace: a durable task queue on DynamoDB, serverless in the cloud and whole on one laptop."""

__version__ = "0.1.0"
