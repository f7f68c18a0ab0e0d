package org.apache.spark;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.spark.api.python.PythonWorker;
import org.apache.spark.api.python.PythonWorkerFactory;
import org.apache.spark.unsafe.Platform;
import scala.Option;
import scala.Tuple2;
import scala.collection.mutable.WeakHashMap;

/**
 * What Spark finds as its environment: the one of this JVM, with Python workers that serve all jobs. When the daemon that
 * forks them is lost, the next worker comes from another one, and no task fails for it (R23). And a planner of a query,
 * instead of running a task, does not name its session: its worker is told, before anything else (R22).
 */
public final class SlotEnv extends SparkEnv {
  private static final String TASKS = "pyspark.worker";
  static final String DIRECTORY = "flinklike.working-directory";
  private static final String DAEMON = "spark.python.daemon.module";
  private static final long END_MILLIS = 2000;

  private SlotEnv() {
    super(null, null, null, null, null, null, null, null, null, null, null, null); // never run: `plant` copies
  }

  /** Put a face of the environment where `SparkEnv.get()` looks. */
  static void plant() throws Exception {
    SparkEnv$.MODULE$.set((SparkEnv) Fields.copy(SparkEnv.get(), SlotEnv.class));
  }

  /** A planner asks for Spark's own daemon, whatever the conf says. */
  private String daemonFor(String asked) {
    return conf().get(DAEMON, asked);
  }

  public synchronized Tuple2 createPythonWorker(
      String program, String module, String asked, scala.collection.immutable.Map environment, boolean isForked) {
    String daemon = daemonFor(asked);
    Tuple2 made;
    endLostDaemons(null, 0); // what rests of theirs may be dead, which shows only when it is reaped
    try {
      made = super.createPythonWorker(program, module, daemon, environment, isForked);
    } catch (Exception error) {
      if (endLostDaemons(null, END_MILLIS) == 0) {
        throw rethrown(error);
      }
      made = super.createPythonWorker(program, module, daemon, environment, isForked);
    }
    if (isForked && !TASKS.equals(module) && conf().contains(DAEMON)) {
      try {
        tell((PythonWorker) made._1());
      } catch (Exception error) { // no other code would ever give it up
        destroyPythonWorker(program, module, asked, environment, (PythonWorker) made._1());
        throw rethrown(error);
      }
    }
    return made;
  }

  /** Spark has its daemon kill a worker; without the daemon nothing would. */
  public synchronized void destroyPythonWorker(
      String program, String module, String asked, scala.collection.immutable.Map environment, PythonWorker worker) {
    try {
      super.destroyPythonWorker(program, module, daemonFor(asked), environment, worker);
    } catch (Exception error) {
      if (!(error instanceof IOException) || endLostDaemons(worker, END_MILLIS) == 0) {
        throw rethrown(error);
      }
      worker.stop();
    }
  }

  public synchronized void releasePythonWorker(
      String program, String module, String asked, scala.collection.immutable.Map environment, PythonWorker worker) {
    super.releasePythonWorker(program, module, daemonFor(asked), environment, worker);
  }

  /**
   * Have Spark forget daemons that have ended, and what rests of theirs; how many there were. Looked at also when a worker
   * could not be made or given up, since a daemon may end at any time, and a pipe breaks a moment (`millis`, for all of
   * them: every job waits for the lock) before the JVM hears of it. `unwanted`, if not null, is a worker that goes with its
   * daemon.
   */
  private int endLostDaemons(PythonWorker unwanted, long millis) {
    int lost = 0;
    long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
    try {
      List factories = new ArrayList(WorkerPools.all().values());
      for (Iterator it = factories.iterator(); it.hasNext(); ) {
        PythonWorkerFactory factory = (PythonWorkerFactory) it.next();
        Process daemon = (Process) Fields.get(PythonWorkerFactory.class, factory, "daemon");
        if (daemon != null && daemon.waitFor(until - System.nanoTime(), TimeUnit.NANOSECONDS)) {
          lost++;
          if (unwanted != null) {
            Option known = ((WeakHashMap) Fields.get(PythonWorkerFactory.class, factory, "daemonWorkers")).get(unwanted);
            if (known.isDefined()) {
              WorkerHandle.destroy(known.get());
            }
          }
          factory.stop();
        }
      }
    } catch (Exception error) {
      throw rethrown(error);
    }
    return lost;
  }

  /** As it was thrown: Scala's methods throw checked exceptions that they do not declare. */
  private static RuntimeException rethrown(Throwable error) {
    Platform.throwException(error);
    return null;
  }

  /** Two texts: the session for which this thread plans, and where its job works; empty for none. */
  private static void tell(PythonWorker worker) {
    SlotSession session = SlotSession.current();
    Option active = SparkContext$.MODULE$.getActive();
    String directory = active.isEmpty() ? null : ((SparkContext) active.get()).getLocalProperty(DIRECTORY);
    ByteArrayOutputStream written = new ByteArrayOutputStream();
    try {
      DataOutputStream out = new DataOutputStream(written);
      write(out, session == null ? "" : session.tag());
      write(out, session == null || directory == null ? "" : directory);
      ByteBuffer buffer = ByteBuffer.wrap(written.toByteArray());
      while (buffer.hasRemaining()) {
        worker.channel().write(buffer); // the buffer of a socket that waits holds all of it
      }
    } catch (IOException error) {
      throw rethrown(error);
    }
  }

  /** How many bytes, and these; Java's own way to write a text is no UTF-8. */
  private static void write(DataOutputStream out, String text) throws IOException {
    byte[] written = text.getBytes(StandardCharsets.UTF_8);
    out.writeInt(written.length);
    out.write(written);
  }
}
