package org.apache.spark;

import java.util.Collections;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.api.python.PythonAccumulatorV2;

/**
 * Python's accumulators of one session, and the threads that wait for them (R22).
 * Spark promises a script that what a job's tasks have
 * added is there when the job's results are, which it keeps by letting the scheduler wait. Here instead wait:
 * - a thread that runs a job, or asks for the result of a submitted one: the thread of a py4j call, of rows that are served lazily,
 *   of a stream, of the user's. It waits for what was merged until then, before it hands on the last of the results;
 * - a thread that runs a query, at its end: stages may have run that no job of that thread has followed.
 * No other thread waits: not the scheduler, not a thread that works for all sessions (the query that it works for does), and
 * no py4j call as such, because the script may make one while it takes an update in. A wait ends with the session.
 */
final class SlotAccumulators {
  private final Set registered = Collections.synchronizedSet(new LinkedHashSet());
  private final String tag;

  SlotAccumulators(String tag) {
    this.tag = tag;
  }

  /** The session's own kind, to be registered in place of the given one. */
  SlotAccumulator replace(PythonAccumulatorV2 given) {
    try {
      SlotAccumulator own = new SlotAccumulator(given, tag);
      registered.add(own);
      return own;
    } catch (Exception error) {
      throw new IllegalStateException("registering an accumulator of " + tag, error);
    }
  }

  /** Wait until the session's process has what its tasks have added; a thread of all sessions goes on at once. */
  void await() {
    if (SharedThreads.isCurrent()) {
      return;
    }
    Object[] all = registered.toArray();
    try {
      for (int i = 0; i < all.length; i++) {
        ((SlotAccumulator) all[i]).await();
      }
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt(); // an interrupt asks for an end, and for no value any more
    }
  }

  void close(List problems) {
    Object[] all = registered.toArray();
    registered.clear();
    for (int i = 0; i < all.length; i++) {
      final SlotAccumulator accumulator = (SlotAccumulator) all[i];
      new Step("accumulator") {
        void take() throws Exception {
          accumulator.close();
        }
      }.tryIt(problems);
    }
  }
}
