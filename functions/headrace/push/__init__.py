"""Sending tasks to targets: over the web, past its traps, or to a Lambda function."""
