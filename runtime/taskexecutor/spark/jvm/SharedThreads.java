package org.apache.spark;

import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.sql.execution.SubqueryExec$;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec$;
import org.apache.spark.sql.execution.adaptive.ResultQueryStageExec$;
import org.apache.spark.sql.execution.exchange.BroadcastExchangeExec$;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec$;
import scala.concurrent.ExecutionContextExecutorService;
import scala.concurrent.impl.ExecutionContextImpl;

/**
 * Pools whose threads work for all sessions. Each piece of work brings its session along, but a thread would also keep the
 * one for which it was started, for as long as it lives: its threads inherit nothing (R25).
 */
final class SharedThreads {
  private static boolean isDone;

  private SharedThreads() {}

  /** Called with a session in place: the pools are made here, and read its conf. Only the first call has an effect. */
  static synchronized void inheritNothing() throws Exception {
    if (!isDone) {
      release(ShuffleExchangeExec$.MODULE$.executionContext(), "shuffle-exchange");
      release(BroadcastExchangeExec$.MODULE$.executionContext(), "broadcast-exchange");
      release(SubqueryExec$.MODULE$.executionContext(), "subquery");
      release(AdaptiveSparkPlanExec$.MODULE$.executionContext(), "QueryStageCreator");
      release(ResultQueryStageExec$.MODULE$.executionContext(), "ResultQueryStageExecution");
      isDone = true;
    }
  }

  private static void release(ExecutionContextExecutorService context, final String name) throws Exception {
    final ClassLoader loader = Thread.currentThread().getContextClassLoader();
    final AtomicInteger numbers = new AtomicInteger();
    ThreadPoolExecutor pool = (ThreadPoolExecutor) Fields.get(ExecutionContextImpl.class, context, "executor");
    pool.setThreadFactory(new ThreadFactory() {
      public Thread newThread(Runnable work) {
        Thread thread = new Thread(null, work, name + "-" + numbers.getAndIncrement(), 0L, false);
        thread.setDaemon(true);
        thread.setContextClassLoader(loader);
        return thread;
      }
    });
  }
}
