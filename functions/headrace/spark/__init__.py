"""The data pipeline on Spark.  Nobody imports it: it needs ``pip install headrace[spark]``."""
