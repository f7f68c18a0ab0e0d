"""Spark's own values of static conf that jobs like to set to just these: a Spark without the key fits them."""

from __future__ import annotations

from collections.abc import Mapping

SPARK_DEFAULTS: Mapping[str, str] = {
    "spark.acls.enable": "false",
    "spark.broadcast.blockSize": "4m",
    "spark.broadcast.compress": "true",
    "spark.driver.cores": "1",
    "spark.driver.maxResultSize": "1g",
    "spark.dynamicAllocation.enabled": "false",
    "spark.eventLog.enabled": "false",
    "spark.executor.heartbeatInterval": "10s",
    "spark.io.compression.codec": "lz4",
    "spark.io.encryption.enabled": "false",
    "spark.kryo.referenceTracking": "true",
    "spark.kryo.registrationRequired": "false",
    "spark.kryo.unsafe": "true",
    "spark.kryoserializer.buffer": "64k",
    "spark.kryoserializer.buffer.max": "64m",
    "spark.locality.wait": "3s",
    "spark.memory.fraction": "0.6",
    "spark.memory.offHeap.enabled": "false",
    "spark.memory.storageFraction": "0.5",
    "spark.network.timeout": "120s",
    "spark.python.worker.reuse": "true",
    "spark.reducer.maxSizeInFlight": "48m",
    "spark.rpc.message.maxSize": "128",
    "spark.serializer": "org.apache.spark.serializer.JavaSerializer",
    "spark.shuffle.compress": "true",
    "spark.shuffle.file.buffer": "32k",
    "spark.shuffle.manager": "sort",
    "spark.shuffle.service.enabled": "false",
    "spark.shuffle.sort.bypassMergeThreshold": "200",
    "spark.shuffle.spill.compress": "true",
    "spark.speculation": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.globalTempDatabase": "global_temp",
    "spark.sql.streaming.ui.enabled": "true",
    "spark.task.cpus": "1",
    "spark.task.maxFailures": "4",
}
"""A test compares them with the JVM's. What a TaskManager's Spark was started with (`WARM_CONF` too) wins over them."""
