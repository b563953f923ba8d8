"""The whole service on one machine: the production handlers, an embedded engine, a small gateway.

`python -m infra.local` starts it; `infra.local.launch` starts it as a child, for tests and tools.
"""
