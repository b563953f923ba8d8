"""The SDK: clients of the HTTP API, tasks as functions, and the worker that runs them."""
