"""Errors alike are alike everywhere: in the service, and in the lake's own SQL."""

import random

from pyspark.sql import SparkSession

from headrace.domain import fingerprints as service
from headrace.domain.fingerprints import MESSAGE
from headrace.spark.lake import tables as lake

ALPHABET = "aFzZ09_-'\"`.,:( \t\n\r\x0b\u00a0\u2003éßİΣς😀x"
WORDS = (
    "tsk_01m7za3fvmbt64wp954cet1w13",
    "123e4567-e89b-12d3-a456-426614174000",
    "0xDEADBEEF12",
    "deadbeef",
    "cafe12é",
    "émile99 of 'a, b'",
    "31.5 s",
    "10:22:31,5",
    "  twice  spaced  ",
    "ÀÉÎ",
    "it's",
    '"un`closed',
)


def messages() -> list[str]:
    chance = random.Random(4)
    drawn = ["".join(chance.choices(ALPHABET, k=chance.randint(0, 30))) for _ in range(600)]
    mixed = [chance.choice(ALPHABET).join(chance.sample(WORDS, 3)) for _ in range(300)]
    return [*WORDS, *drawn, *mixed, "x1 " * MESSAGE, ""]


def test_service_and_lake_tell_the_same_errors_alike(spark: SparkSession) -> None:
    # A line of the lake has so much of a message.
    rows = [(kind, text, text[:MESSAGE]) for text in messages() for kind in ("Timeout", "")]
    frame = spark.createDataFrame(rows, "kind string, whole string, message string")

    reported = frame.select("*", lake.fingerprint("kind", "message").alias("print")).collect()

    wrong = [
        (row["kind"], row["whole"])
        for row in reported
        if row["print"] != service.fingerprint(row["kind"], row["whole"])
    ]
    assert wrong == []
