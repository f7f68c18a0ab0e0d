package org.apache.spark;

import java.util.concurrent.ExecutorService;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SubqueryExec$;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec$;
import org.apache.spark.sql.execution.adaptive.ResultQueryStageExec$;
import org.apache.spark.sql.execution.exchange.BroadcastExchangeExec$;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec$;
import scala.concurrent.ExecutionContextExecutorService;
import scala.concurrent.impl.ExecutionContextImpl;

/**
 * A pool whose threads work for all sessions. Each piece of work brings its session along, but a thread would also keep
 * the one for which it was started, and Spark leaves that of a query which fails: its threads inherit nothing, and keep
 * nothing (R25). There are as many as there is work at once: work of one job that waits for more work here, as a query
 * does for its subqueries, would otherwise hold all of them, and the queries of all sessions (R22).
 */
final class SharedThreads extends ThreadPoolExecutor {
  private static final long IDLE_SECONDS = 60;

  private static boolean isDone;

  private final SparkContext original;

  private SharedThreads(ThreadFactory factory, SparkContext original) {
    super(0, Integer.MAX_VALUE, IDLE_SECONDS, TimeUnit.SECONDS, new SynchronousQueue(), factory);
    this.original = original;
  }

  /** True on a thread of such a pool. */
  static boolean isCurrent() {
    return Thread.currentThread() instanceof Member;
  }

  private static final class Member extends Thread {
    Member(Runnable work, String name) {
      super(null, work, name, 0L, false);
    }
  }

  protected void afterExecute(Runnable work, Throwable failure) {
    SparkSession.clearActiveSession();
    original.localProperties().remove();
  }

  /** Called with a session in place, whose conf Spark reads to make its pools. Only the first call has an effect. */
  static synchronized void replace(SparkContext original) throws Exception {
    if (!isDone) {
      replace(ShuffleExchangeExec$.MODULE$.executionContext(), "shuffle-exchange", original);
      replace(BroadcastExchangeExec$.MODULE$.executionContext(), "broadcast-exchange", original);
      replace(SubqueryExec$.MODULE$.executionContext(), "subquery", original);
      replace(AdaptiveSparkPlanExec$.MODULE$.executionContext(), "QueryStageCreator", original);
      replace(ResultQueryStageExec$.MODULE$.executionContext(), "ResultQueryStageExecution", original);
      isDone = true;
    }
  }

  private static void replace(ExecutionContextExecutorService context, String name, SparkContext original)
      throws Exception {
    ThreadPoolExecutor replaced = (ThreadPoolExecutor) Fields.get(ExecutionContextImpl.class, context, "executor");
    ExecutorService pool = new SharedThreads(named(name), original);
    Fields.set(ExecutionContextImpl.class, context, "executor", pool);
    replaced.shutdown();
  }

  private static ThreadFactory named(final String name) {
    final ClassLoader loader = Thread.currentThread().getContextClassLoader();
    final AtomicInteger numbers = new AtomicInteger();
    return new ThreadFactory() {
      public Thread newThread(Runnable work) {
        Thread thread = new Member(work, name + "-" + numbers.getAndIncrement());
        thread.setDaemon(true);
        thread.setContextClassLoader(loader);
        return thread;
      }
    };
  }
}
