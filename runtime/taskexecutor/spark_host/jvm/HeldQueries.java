package org.apache.spark;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.spark.sql.internal.SharedState;
import org.apache.spark.sql.streaming.StreamingQuery;

/**
 * Ends the streaming query of a session between two batches, so that the batch that runs is committed and none follows, and knows
 * then that the query is held: its process waits for the word of the job's owner (R61). A hold has the id of what it is for.
 */
public final class HeldQueries {
  private static final Map HOLDS = new ConcurrentHashMap();

  private final String id;
  private final boolean drains;
  private StreamingQuery query;
  private String phase = "ending";

  private HeldQueries(String id, boolean drains) {
    this.id = id;
    this.drains = drains;
  }

  static void forget(String tag) {
    HOLDS.remove(tag);
  }

  /**
   * Have the query of a session end between two batches, and say how far that is: "none" while no query runs that could, "ending",
   * "draining" while it reads what was there, "held". Without an id the query is looked at only, and "running". Never waits.
   */
  static String look(String tag, SharedState state, SparkContext context, String id, boolean drains) throws Exception {
    StreamingQuery running = SlotStreams.runningOf(state, context);
    if (id.length() == 0) {
      return running == null ? told(tag, "none", null) : told(tag, "running", running);
    }
    HeldQueries made = (HeldQueries) HOLDS.get(tag);
    if (made == null || !made.id.equals(id)) {
      made = new HeldQueries(id, drains);
      HOLDS.put(tag, made);
    }
    synchronized (made) {
      if (running != null) {
        made.query = running;
        if (made.phase.equals("ending")) {
          end(running);
        }
      }
      boolean isNone = made.query == null && made.phase.equals("ending");
      return told(tag, isNone ? "none" : made.phase, made.query);
    }
  }

  /**
   * A query of the session has ended, says its process. What follows: "" when nobody holds it; "drain id" for another run that
   * reads what is there, after which this is called again; "hold id" to wait for the word.
   */
  static String ended(String tag) {
    HeldQueries made = (HeldQueries) HOLDS.get(tag);
    if (made == null) {
      return "";
    }
    synchronized (made) {
      if (made.drains && made.phase.equals("ending")) {
        made.phase = "draining";
        return "drain " + made.id;
      }
      made.phase = "held";
      return "hold " + made.id;
    }
  }

  /**
   * Spark looks at the state between two batches only. Its thread is interrupted only where it waits for the next trigger, outside
   * of any batch: with this state it begins none when it goes on instead.
   */
  static void end(StreamingQuery query) throws Exception {
    AtomicReference state = (AtomicReference) call(query, "state");
    Object now = state.get();
    String name = now.getClass().getName();
    if (name.endsWith(".ACTIVE$")) {
      Class terminated = Class.forName(
          name.substring(0, name.length() - "ACTIVE$".length()) + "TERMINATED$", true, now.getClass().getClassLoader());
      state.compareAndSet(now, terminated.getField("MODULE$").get(null));
    }
    if (state.get().getClass().getName().endsWith(".TERMINATED$") && waits((Thread) call(query, "queryExecutionThread"))) {
      query.stop();
    }
  }

  private static boolean waits(Thread thread) {
    StackTraceElement[] frames = thread.getStackTrace();
    boolean waits = false;
    for (int i = 0; i < frames.length; i++) {
      String method = frames[i].getMethodName();
      if (method.equals("executeOneBatch") || method.equals("runOneBatch")) {
        return false;
      }
      waits = waits || method.equals("waitTillTime");
    }
    return waits;
  }

  private static String told(String tag, String phase, StreamingQuery query) throws Exception {
    StringBuilder out = new StringBuilder("{\"phase\":\"").append(phase).append("\",\"position\":");
    if (query == null) {
      return out.append("null}").toString();
    }
    SlotStreams.position(tag, query, out);
    out.append(",\"sink\":").append(SlotStreams.quoted(String.valueOf(call(query, "sink"))));
    SlotStreams.sources(tag, query, out.append(",\"sources\":"));
    return out.append('}').toString();
  }

  /** By reflection, since the class of queries has moved between versions. */
  static Object call(StreamingQuery query, String method) throws Exception {
    return query.getClass().getMethod(method, new Class[0]).invoke(query, new Object[0]);
  }
}
