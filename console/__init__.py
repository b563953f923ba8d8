"""The operator console: pages over the use cases, as one Lambda function."""
