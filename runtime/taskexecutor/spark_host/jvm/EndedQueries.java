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

  /** Whoever's they are. A query is known before its first job, so one that nobody knows is over, not yet to come. */
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
