package org.apache.spark;

import java.io.Closeable;
import java.util.LinkedList;
import org.apache.spark.api.python.PythonAccumulatorV2;
import org.apache.spark.util.AccumulatorV2;

/**
 * Python's accumulator of one session: what its tasks have added goes to the session's process. Spark's own sends it on
 * the scheduler's only thread and waits for the answer, so a process that is frozen, or does not yield its interpreter,
 * would stop the jobs of all. This one sends on a thread of the session; SlotAccumulators says which threads wait for it (R22).
 */
public final class SlotAccumulator extends CopiedAccumulator {
  private final LinkedList updates = new LinkedList();
  private final String tag;
  private long added;
  private long sent;
  private boolean isStarted;
  private boolean isClosed;

  /** With the same other end as the given one, in whose place the context registers it. */
  SlotAccumulator(PythonAccumulatorV2 given, String tag) throws Exception {
    super(given);
    this.tag = tag;
  }

  /** Called by the scheduler when a task has succeeded; does not wait. */
  public void merge(AccumulatorV2 update) {
    synchronized (updates) {
      if (isClosed) {
        return;
      }
      updates.add(update);
      added++;
      updates.notifyAll();
      if (!isStarted) {
        isStarted = true;
        start();
      }
    }
  }

  private void start() {
    Thread thread = new Thread("accumulators of " + tag) {
      public void run() {
        try {
          while (sendNext()) {
            // until the session ends
          }
        } catch (InterruptedException error) {
          log().error("accumulators of " + tag + " are not updated any more", error);
        }
      }
    };
    thread.setDaemon(true);
    thread.start();
  }

  private boolean sendNext() throws InterruptedException {
    AccumulatorV2 next;
    synchronized (updates) {
      while (updates.isEmpty() && !isClosed) {
        updates.wait();
      }
      if (isClosed) {
        return false;
      }
      next = (AccumulatorV2) updates.getFirst();
    }
    try {
      send(next);
    } catch (Throwable error) { // also an Error: callers wait for what comes behind it
      if (!isClosed()) {
        log().error("an update of the accumulators of " + tag + " did not reach their process", error);
      }
    }
    synchronized (updates) {
      updates.poll();
      sent++;
      updates.notifyAll();
    }
    return true;
  }

  private void send(AccumulatorV2 update) {
    super.merge(update);
  }

  private boolean isClosed() {
    synchronized (updates) {
      return isClosed;
    }
  }

  /** Wait until the session's process has all updates that were merged before; others may follow meanwhile. */
  void await() throws InterruptedException {
    synchronized (updates) {
      long last = added;
      while (sent < last && !isClosed) {
        updates.wait();
      }
    }
  }

  /** Drop what has not been sent, and the connection, which Spark would keep for ever. */
  void close() throws Exception {
    synchronized (updates) {
      isClosed = true;
      updates.clear();
      updates.notifyAll();
    }
    Closeable socket = (Closeable) Fields.get(PythonAccumulatorV2.class, this, "socket");
    if (socket != null) {
      socket.close();
    }
  }
}
