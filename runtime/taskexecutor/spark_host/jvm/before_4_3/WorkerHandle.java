package org.apache.spark;

/** As the class of this name one folder up, for Spark 4.0 to 4.2, which hold a handle of Java. */
final class WorkerHandle {
  private WorkerHandle() {}

  /** End that process. */
  static void destroy(Object handle) {
    ((ProcessHandle) handle).destroy();
  }
}
