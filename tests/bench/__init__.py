"""Measures Headrace: cost, latency and throughput, beside the bars they must keep.

`python -m tests.bench` (or `make bench`) runs it; docs/performance.md explains the figures.
"""
