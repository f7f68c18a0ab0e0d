"""The Spark host process: it holds the driver JVM of one TaskManager."""
