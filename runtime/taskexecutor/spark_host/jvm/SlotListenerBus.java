package org.apache.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.scheduler.LiveListenerBus;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerInterface;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd;

/**
 * The listener bus of all as one session sees it: it remembers what the session adds, and takes it away (R25). Queues, each
 * with a thread, are the slot's: a listener that hangs holds up those of its own slot only (R22).
 */
public final class SlotListenerBus extends LiveListenerBus {
  private LiveListenerBus shared;
  private List added;
  private String prefix;
  private SlotAccumulators accumulators;

  private SlotListenerBus() {
    super((SparkConf) null); // never run: `of` copies
  }

  static SlotListenerBus of(LiveListenerBus shared, String slot, SlotAccumulators accumulators)
      throws Exception {
    SlotListenerBus made = (SlotListenerBus) Fields.copy(shared, SlotListenerBus.class);
    made.shared = shared;
    made.prefix = slot + "-";
    made.accumulators = accumulators;
    made.added = new ArrayList();
    return made;
  }

  /** The thread that runs a query tells of its end here. */
  public void post(SparkListenerEvent event) {
    super.post(event);
    if (event instanceof SparkListenerSQLExecutionEnd) {
      accumulators.await();
    }
  }

  public void addToQueue(SparkListenerInterface listener, String queue) {
    synchronized (added) {
      added.add(listener);
    }
    shared.addToQueue(listener, prefix + queue);
  }

  public void removeListener(SparkListenerInterface listener) {
    synchronized (added) {
      added.remove(listener);
    }
    shared.removeListener(listener);
  }

  /** The bus belongs to all sessions: none stops it from here. */
  public void stop() {}

  void removeAdded() {
    Object[] listeners;
    synchronized (added) {
      listeners = added.toArray();
      added.clear();
    }
    for (int i = 0; i < listeners.length; i++) {
      shared.removeListener((SparkListenerInterface) listeners[i]);
    }
  }
}
