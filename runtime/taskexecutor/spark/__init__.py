"""The shared Spark driver JVM of one TaskManager: launch, sessions for slots, progress, supervision."""
