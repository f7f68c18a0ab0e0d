package org.apache.spark;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.internal.SharedState;
import org.apache.spark.sql.streaming.StreamingQuery;

/**
 * The streaming queries that a script starts in its session: those whose state the cluster keeps, by their names, running or
 * ended; and all of them held for a stop (R61): each ends between two batches, and none begins before the word of the job's owner.
 */
public final class ScriptQueries {
  private static final Map OF = new ConcurrentHashMap();

  /** More names than that are of a script that makes one up for each run: the newest are known. */
  private static final int KEPT_MAX = 1000;

  private final String tag;
  private final SharedState state;
  private final SparkContext context;
  private final Map kept = new LinkedHashMap();
  private final Map ended = new LinkedHashMap(); // by the hold, runs by their id
  private String hold = "";
  private String awaited = ""; // names with line ends between
  private int starting;

  private ScriptQueries(String tag, SharedState state, SparkContext context) {
    this.tag = tag;
    this.state = state;
    this.context = context;
  }

  static ScriptQueries of(String tag, SharedState state, SparkContext context) {
    ScriptQueries made = new ScriptQueries(tag, state, context);
    OF.put(tag, made);
    return made;
  }

  static void forget(String tag) {
    OF.remove(tag);
  }

  /** A query is about to start: "" if it may, and `started` follows; else the hold for which none starts. */
  public synchronized String starts() {
    starting += hold.length() == 0 ? 1 : 0;
    return hold;
  }

  /** It has started, null if it has not. `name`: of its state that the cluster keeps, "" for a query without. */
  public synchronized void started(StreamingQuery query, String name) throws Exception {
    starting--;
    if (query != null && name.length() > 0) {
      kept.remove(name);
      boolean isWrapped = query.getClass().getName().endsWith(".StreamingQueryWrapper"); // it has no commit log and no sink
      kept.put(name, isWrapped ? HeldQueries.call(query, "streamingQuery") : query);
      if (kept.size() > KEPT_MAX) {
        kept.remove(kept.keySet().iterator().next());
      }
    }
  }

  /** Queries of the savepoint that the job was started from, which the script is yet to start: names with line ends between. */
  public synchronized void awaits(String names) {
    awaited = names;
  }

  /** The hold that there is, "" for none. */
  public synchronized String hold() {
    return hold;
  }

  /** Has the hold ended this run of a query? One that has failed meanwhile has ended by itself. */
  public synchronized boolean isHeld(StreamingQuery query) {
    return hold.length() > 0 && ended.containsKey(query.runId()) && query.exception().isEmpty();
  }

  /** The hold is over, and so many queries start again: `started` follows for each. What has ended for it has not ended. */
  public synchronized void release(String id, int again) {
    if (hold.equals(id)) {
      hold = "";
      starting += again;
      for (Iterator it = ended.values().iterator(); it.hasNext(); ) {
        ((StreamingQuery) it.next()).sparkSession().streams().resetTerminated();
      }
      ended.clear();
    }
  }

  /**
   * How far the queries are whose state the cluster keeps. With the id of a hold all queries of the script end between two
   * batches: "ending", then "held". A query that has failed meanwhile is not held: its failure is that of the attempt.
   */
  public static String look(String tag, String id) throws Exception {
    ScriptQueries of = (ScriptQueries) OF.get(tag);
    return of == null ? "{\"phase\":\"none\",\"queries\":[]}" : of.look(id);
  }

  private synchronized String look(String id) throws Exception {
    List running = running();
    String phase = "running";
    if (id.length() > 0) {
      hold = id; // in place of one whose queries do not go on yet: those that it has ended are held by this one
      for (Iterator it = running.iterator(); it.hasNext(); ) {
        StreamingQuery query = (StreamingQuery) it.next();
        ended.put(query.runId(), query);
        HeldQueries.end(query);
      }
      phase = starting == 0 && running.isEmpty() && !hasFailed() ? "held" : "ending";
    }
    StringBuilder out = new StringBuilder("{\"phase\":\"").append(phase).append("\",\"queries\":[");
    for (Iterator it = kept.entrySet().iterator(); it.hasNext(); ) {
      Map.Entry entry = (Map.Entry) it.next();
      StreamingQuery query = (StreamingQuery) entry.getValue();
      out.append("{\"name\":").append(SlotStreams.quoted((String) entry.getKey())).append(",\"position\":");
      SlotStreams.position(tag, query, out);
      out.append(",\"sink\":").append(SlotStreams.quoted(String.valueOf(HeldQueries.call(query, "sink"))));
      SlotStreams.sources(tag, query, out.append(",\"sources\":"));
      out.append(it.hasNext() ? "}," : "}");
    }
    out.append("],\"awaited\":[");
    String[] names = awaited.length() == 0 ? new String[0] : awaited.split("\n");
    for (int i = 0; i < names.length; i++) {
      out.append(i == 0 ? "" : ",").append(SlotStreams.quoted(names[i]));
    }
    return out.append("]}").toString();
  }

  private boolean hasFailed() {
    for (Iterator it = ended.values().iterator(); it.hasNext(); ) {
      if (((StreamingQuery) it.next()).exception().isDefined()) {
        return true;
      }
    }
    return false;
  }

  private List running() {
    List found = new ArrayList();
    Object[] all = state.activeStreamingQueries().values().toArray();
    for (int i = 0; i < all.length; i++) {
      if (((StreamingQuery) all[i]).sparkSession().sparkContext() == context) {
        found.add(all[i]);
      }
    }
    return found;
  }
}
