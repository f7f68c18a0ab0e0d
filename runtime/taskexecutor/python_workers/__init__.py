"""The Python workers of Spark: processes that the driver JVM starts, each for one session."""
