package org.apache.spark;

import org.apache.spark.api.python.PythonWorkerHandle;
import org.apache.spark.scheduler.DAGScheduler;
import org.apache.spark.sql.catalyst.analysis.RelationCache;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.execution.CacheManager;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;
import org.apache.spark.sql.internal.SharedState;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * What one minor version of Spark has and another has not, or has elsewhere. The folders `before_*` have this class, and
 * whatever else differs, for older versions (`versions.py`).
 */
final class SparkDifferences {
  private SparkDifferences() {}

  /** Let a session's state look tables up in the session's cache. Spark's own lookup is bound to the cache of all. */
  static void lookUpTablesIn(final CacheManager cache, SharedState state) throws Exception {
    Fields.set(SharedState.class, state, "relationCache", new RelationCache() {
      public scala.Option lookup(
          CatalogPlugin catalog,
          Identifier name,
          scala.Option version,
          CaseInsensitiveStringMap options,
          scala.Function2 resolver) {
        return cache.lookupCachedTable(catalog, name, version, options, resolver);
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

  /**
   * Have the scheduler forget the queries that it still knows after their end, of all sessions. It forgets the jobs of a
   * query when that ends; a job that begins later under the query's number (of a thread that has inherited it, of a plan
   * that is cancelled while its stages are being submitted) would stay for as long as the JVM, with its session and all
   * that this has cached (R25). Spark knows a query before its first job, so a query that it does not know is over.
   */
  static void forgetEndedQueries(SparkContext original) {
    DAGScheduler scheduler = original.dagScheduler();
    Object[] known = scheduler.activeQueryToJobs().keySet().toArray();
    for (int i = 0; i < known.length; i++) {
      long query = ((Long) known[i]).longValue();
      if (SQLExecution.getQueryExecution(query) == null) {
        scheduler.cleanupQueryJobs(query);
      }
    }
  }

  /** End a Python worker, by what Spark holds of its process. */
  static void endWorker(Object handle) {
    ((PythonWorkerHandle) handle).destroy();
  }
}
