package org.apache.spark;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.spark.api.python.PythonWorkerFactory;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Spark's pools of Python workers, of which it ends none: those of a job that brings files end with the job, and those that it
 * makes for one query beside all others end with the session (R25).
 */
public final class WorkerPools {
  private static final String JOB = "FLINKLIKE_JOB_ID";

  private WorkerPools() {}

  /** By what Spark knows them; guarded by the lock of SparkEnv. */
  static Map all() throws Exception {
    return CollectionConverters.asJava(
        (scala.collection.mutable.Map) Fields.get(SparkEnv.class, SparkEnv.get(), "pythonWorkers"));
  }

  static int count() throws Exception {
    synchronized (SparkEnv.get()) {
      return all().size();
    }
  }

  /** A job has left, and the workers that it had for itself serve no other. */
  public static void forgetJob(String job) throws Exception {
    synchronized (SparkEnv.get()) {
      for (Iterator it = all().entrySet().iterator(); it.hasNext(); ) {
        Map.Entry pool = (Map.Entry) it.next();
        Option owner = ((SparkEnv.PythonWorkersKey) pool.getKey()).envVars().get(JOB);
        if (owner.isDefined() && job.equals(owner.get())) {
          it.remove();
          end((PythonWorkerFactory) pool.getValue());
        }
      }
    }
  }

  /** A session ends, whose queries run no more. */
  static void forgetSession(String tag) throws Exception {
    Option active = SparkContext$.MODULE$.getActive();
    List monitors = monitors();
    if (active.isEmpty() || monitors.isEmpty()) {
      return;
    }
    List pooled;
    synchronized (SparkEnv.get()) {
      pooled = new ArrayList(all().values());
    }
    ThreadLocal inherited = ((SparkContext) active.get()).localProperties();
    for (Iterator it = monitors.iterator(); it.hasNext(); ) {
      Thread monitor = (Thread) it.next();
      Properties properties = (Properties) Fields.local(monitor, "inheritableThreadLocals", inherited);
      PythonWorkerFactory factory = factoryOf(monitor);
      if (!pooled.contains(factory) && properties != null && tag.equals(properties.getProperty(SlotSession.PROPERTY))) {
        end(factory);
      }
    }
  }

  /** Spark stops the workers, and leaves a thread that looks after them for ever. */
  private static void end(PythonWorkerFactory factory) throws Exception {
    factory.stop();
    for (Iterator it = monitors().iterator(); it.hasNext(); ) {
      Thread monitor = (Thread) it.next();
      if (factoryOf(monitor) == factory) {
        monitor.setUncaughtExceptionHandler(new Thread.UncaughtExceptionHandler() {
          public void uncaughtException(Thread thread, Throwable error) {
            if (!(error instanceof InterruptedException)) {
              thread.getThreadGroup().uncaughtException(thread, error);
            }
          }
        });
        monitor.interrupt(); // it sleeps as a rule, or will
      }
    }
  }

  private static PythonWorkerFactory factoryOf(Thread monitor) throws Exception {
    return (PythonWorkerFactory) Fields.get(PythonWorkerFactory.MonitorThread.class, monitor, "$outer");
  }

  /** Living threads that look after workers, one for each pool; found without a look at what they do, which is dear. */
  static List monitors() {
    ThreadGroup group = Thread.currentThread().getThreadGroup();
    while (group.getParent() != null) {
      group = group.getParent();
    }
    Thread[] threads = new Thread[2 * group.activeCount() + 64];
    int count = group.enumerate(threads, true);
    List found = new ArrayList();
    for (int i = 0; i < count; i++) {
      if (threads[i] instanceof PythonWorkerFactory.MonitorThread) {
        found.add(threads[i]);
      }
    }
    return found;
  }
}
