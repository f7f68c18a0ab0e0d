package org.apache.spark;

import org.apache.spark.sql.catalyst.analysis.RelationCache;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.execution.CacheManager;
import org.apache.spark.sql.internal.SharedState;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Looks tables up in the cache of one session. Spark's own is bound to the cache of all. */
final class SlotRelationCache implements RelationCache {
  private final CacheManager cache;

  private SlotRelationCache(CacheManager cache) {
    this.cache = cache;
  }

  /** Let a session's state look tables up in the session's cache. */
  static void install(SharedState state, CacheManager cache) throws Exception {
    Fields.set(SharedState.class, state, "relationCache", new SlotRelationCache(cache));
  }

  public scala.Option lookup(
      CatalogPlugin catalog,
      Identifier name,
      scala.Option version,
      CaseInsensitiveStringMap options,
      scala.Function2 resolver) {
    return cache.lookupCachedTable(catalog, name, version, options, resolver);
  }
}
