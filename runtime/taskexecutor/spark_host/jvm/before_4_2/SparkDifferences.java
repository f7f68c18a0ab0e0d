package org.apache.spark;

import org.apache.spark.sql.catalyst.analysis.RelationCache;
import org.apache.spark.sql.execution.CacheManager;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;
import org.apache.spark.sql.internal.SharedState;

/**
 * As the class of this name one folder up, for Spark 4.1, whose scheduler keeps no list of queries.
 */
final class SparkDifferences {
  private SparkDifferences() {}

  /** Let a session's state look tables up in the session's cache. Spark's own lookup is bound to the cache of all. */
  static void lookUpTablesIn(final CacheManager cache, SharedState state) throws Exception {
    Fields.set(SharedState.class, state, "relationCache", new RelationCache() {
      public scala.Option lookup(scala.collection.immutable.Seq name, scala.Function2 resolver) {
        return cache.lookupCachedTable(name, resolver);
      }
    });
  }

  /** Stop a streaming query if it is one of this context. Says which one in the message of what it throws. */
  static void stopStream(Object query, SparkContext context) {
    StreamExecution stream = (StreamExecution) query;
    if (stream.sparkSession().sparkContext() == context) {
      try {
        stream.stop();
      } catch (Exception error) {
        throw new IllegalStateException("streaming query " + stream.id() + ": " + error, error);
      }
    }
  }

  /** It keeps none. */
  static void forgetEndedQueries(SparkContext original) {}

  /** End a Python worker, by what Spark holds of its process. */
  static void endWorker(Object handle) {
    ((ProcessHandle) handle).destroy();
  }
}
