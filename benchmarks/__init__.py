"""Measures Headrace: cost, latency and throughput, beside the bars they must keep.

`python -m benchmarks` (or `make bench`) runs it; docs/performance.md explains the figures.
"""
