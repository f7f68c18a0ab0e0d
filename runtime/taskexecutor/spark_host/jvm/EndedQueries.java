package org.apache.spark;

import org.apache.spark.scheduler.DAGScheduler;
import org.apache.spark.sql.execution.SQLExecution;

/**
 * Queries that the scheduler still knows after their end. It forgets the jobs of a query when that ends; a job that begins
 * later under the query's number (of a thread that has inherited it, of a plan that is cancelled while its stages are
 * being submitted) would stay for as long as the JVM, with its session and all that this has cached (R25).
 */
final class EndedQueries {
  private EndedQueries() {}

  /** Of all sessions. Spark knows a query before its first job, so a query that it does not know is over. */
  static void forget(SparkContext original) {
    DAGScheduler scheduler = original.dagScheduler();
    Object[] known = scheduler.activeQueryToJobs().keySet().toArray();
    for (int i = 0; i < known.length; i++) {
      long query = ((Long) known[i]).longValue();
      if (SQLExecution.getQueryExecution(query) == null) {
        scheduler.cleanupQueryJobs(query);
      }
    }
  }
}
