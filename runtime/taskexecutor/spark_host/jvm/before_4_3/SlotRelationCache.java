package org.apache.spark;

import org.apache.spark.sql.catalyst.analysis.RelationCache;
import org.apache.spark.sql.execution.CacheManager;
import org.apache.spark.sql.internal.SharedState;

/** As the class of this name one folder up, for Spark 4.1 and 4.2, which look up by names in a sequence. */
final class SlotRelationCache implements RelationCache {
  private final CacheManager cache;

  private SlotRelationCache(CacheManager cache) {
    this.cache = cache;
  }

  /** Let a session's state look tables up in the session's cache. */
  static void install(SharedState state, CacheManager cache) throws Exception {
    Fields.set(SharedState.class, state, "relationCache", new SlotRelationCache(cache));
  }

  public scala.Option lookup(scala.collection.immutable.Seq name, scala.Function2 resolver) {
    return cache.lookupCachedTable(name, resolver);
  }
}
