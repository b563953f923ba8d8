"""What runs the data pipeline in AWS: its package, and the scripts that jobs start with.

`python -m infra.spark` builds it all into build/spark/ and puts it where infra/spark.yaml looks for
it; `docs/how-to/spark-on-aws.md` says how to run it.  `lake.py` and `station.py` are no part of any
package: EMR Serverless starts them as they are.
"""
