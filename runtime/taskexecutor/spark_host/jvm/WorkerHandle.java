package org.apache.spark;

import org.apache.spark.api.python.PythonWorkerHandle;

/** What Spark holds of the process of a Python worker. */
final class WorkerHandle {
  private WorkerHandle() {}

  /** End that process. */
  static void destroy(Object handle) {
    ((PythonWorkerHandle) handle).destroy();
  }
}
