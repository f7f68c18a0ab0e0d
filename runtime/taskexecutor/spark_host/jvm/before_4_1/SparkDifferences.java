package org.apache.spark;

import org.apache.spark.sql.execution.CacheManager;
import org.apache.spark.sql.execution.streaming.StreamExecution;
import org.apache.spark.sql.internal.SharedState;

/**
 * As the class of this name one folder up, for Spark 4.0, which has neither another cache of relations nor a list of queries.
 */
final class SparkDifferences {
  private SparkDifferences() {}

  /** It looks nowhere but into the session's cache. */
  static void lookUpTablesIn(CacheManager cache, SharedState state) {}

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
