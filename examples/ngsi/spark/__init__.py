"""The same pipeline as two stations on Spark, ending in a time-series table in Parquet."""
