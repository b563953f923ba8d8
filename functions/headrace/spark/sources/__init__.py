"""The formats of the data pipeline: queues and tables, to read from and write to with Spark."""
