package org.apache.spark;

import org.apache.spark.sql.execution.CacheManager;
import org.apache.spark.sql.internal.SharedState;

/** As the class of this name one folder up, for Spark 4.0, which looks nowhere but into the session's cache. */
final class SlotRelationCache {
  private SlotRelationCache() {}

  /** There is nothing to replace. */
  static void install(SharedState state, CacheManager cache) {}
}
