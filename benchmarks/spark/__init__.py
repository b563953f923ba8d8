"""How fast the data pipeline is: ``make bench-spark``."""
