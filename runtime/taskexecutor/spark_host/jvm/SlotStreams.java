package org.apache.spark;

import java.util.Iterator;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.internal.SharedState;
import org.apache.spark.sql.streaming.StateOperatorProgress;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.streaming.StreamingQueryListener;
import org.apache.spark.sql.streaming.StreamingQueryProgress;
import scala.Option;

/**
 * What the streaming queries of one session have done, as Spark's listeners tell it: batches and rows are counted here, since
 * Spark keeps the last hundred batches only. Of a query that has ended the count stays until its session ends.
 */
public final class SlotStreams extends StreamingQueryListener {
  private static final Map FOLLOWED = new ConcurrentHashMap();

  private static final String COMMITS_LATER = "AsyncProgressTrackingMicroBatchExecution";

  /** A trigger that takes longer than these milliseconds is told while it runs. */
  private static final long LONG_TRIGGER = 10000L;

  private final Map queries = new ConcurrentHashMap();
  private final SharedState state;

  private SlotStreams(SharedState state) {
    this.state = state;
  }

  private static final class Seen {
    String id;
    String name;
    long batches;
    long rows;
    boolean hasTriggered;
    boolean isIdle;
    boolean isEnded;
    boolean commitsLater;
    volatile long movedMillis = System.currentTimeMillis(); // the end of a batch, of a look that found nothing, or a pause
    StreamingQueryProgress last;
  }

  /** Follow all queries that the session will start. Idempotent. */
  static void follow(String tag, org.apache.spark.sql.classic.SparkSession session) {
    SlotStreams made = new SlotStreams(session.sharedState());
    if (FOLLOWED.putIfAbsent(tag, made) == null) {
      session.streams().addListener(made);
    }
  }

  static void forget(String tag) {
    FOLLOWED.remove(tag);
  }

  public void onQueryStarted(QueryStartedEvent event) {
    Seen seen = of(String.valueOf(event.runId()));
    seen.id = String.valueOf(event.id());
    seen.name = event.name();
  }

  public void onQueryProgress(QueryProgressEvent event) {
    StreamingQueryProgress progress = event.progress();
    Seen seen = of(String.valueOf(progress.runId()));
    synchronized (seen) {
      if (progress.numInputRows() > 0 || seen.last == null || seen.last.batchId() != progress.batchId()) {
        seen.batches++;
      }
      seen.rows += progress.numInputRows();
      seen.id = String.valueOf(progress.id());
      seen.name = progress.name();
      seen.commitsLater = seen.last == null ? commitsLater(progress) : seen.commitsLater;
      seen.last = progress;
      seen.movedMillis = System.currentTimeMillis();
      seen.hasTriggered = true;
      seen.isIdle = false;
      seen.notifyAll();
    }
  }

  public void onQueryIdle(QueryIdleEvent event) {
    Seen seen = of(String.valueOf(event.runId()));
    seen.id = String.valueOf(event.id());
    seen.movedMillis = System.currentTimeMillis();
    seen.hasTriggered = true;
    seen.isIdle = true;
  }

  public void onQueryTerminated(QueryTerminatedEvent event) {
    Seen seen = of(String.valueOf(event.runId()));
    synchronized (seen) {
      seen.isEnded = true;
      seen.notifyAll();
    }
  }

  /** True for a query that tells of batches before its commit log has them. */
  private boolean commitsLater(StreamingQueryProgress progress) {
    Object query = state.activeStreamingQueries().get(progress.id()); // by the query's id, not that of the run
    return query != null && query.getClass().getName().endsWith(COMMITS_LATER);
  }

  /** Since when a query is in one trigger, in milliseconds since 1970; 0 for one that is not, or not for long. */
  private long busySince(Seen seen) {
    StreamingQuery query = seen.id == null ? null : (StreamingQuery) state.activeStreamingQueries().get(UUID.fromString(seen.id));
    long now = System.currentTimeMillis();
    if (query == null || !query.status().isTriggerActive()) {
      seen.movedMillis = now;
    }
    return now - seen.movedMillis > LONG_TRIGGER ? seen.movedMillis : 0;
  }

  private Seen of(String runId) {
    Seen made = new Seen();
    Seen known = (Seen) queries.putIfAbsent(runId, made);
    return known == null ? made : known;
  }

  /** Wait until Spark has told of the end of this run. Batches, rows and the number of the last batch, with blanks between. */
  static String ended(String tag, String runId, long millis) throws InterruptedException {
    Seen seen = ((SlotStreams) FOLLOWED.get(tag)).of(runId);
    long until = System.currentTimeMillis() + millis;
    synchronized (seen) {
      for (long left = millis; !seen.isEnded && left > 0; left = until - System.currentTimeMillis()) {
        seen.wait(left);
      }
      return seen.batches + " " + seen.rows + " " + (seen.last == null ? -1 : seen.last.batchId());
    }
  }

  /**
   * How far the running queries of a session have come for good. The commit log is asked, since Spark tells its listeners nothing
   * of a query that was started again and has nothing to read; by reflection, since its class has moved between versions.
   */
  static String positions(String tag, SharedState state, SparkContext context) throws Exception {
    StringBuilder out = new StringBuilder("[");
    Object[] running = state.activeStreamingQueries().values().toArray();
    for (int i = 0; i < running.length; i++) {
      StreamingQuery query = (StreamingQuery) running[i];
      if (query.sparkSession().sparkContext() == context) {
        out.append(out.length() == 1 ? "" : ",");
        position(tag, query, out);
      }
    }
    return out.append(']').toString();
  }

  static void position(String tag, StreamingQuery query, StringBuilder out) throws Exception {
    Object log = HeldQueries.call(query, "commitLog");
    Option latest = (Option) log.getClass().getMethod("getLatestBatchId", new Class[0]).invoke(log, new Object[0]);
    Seen seen = seenOf(tag, String.valueOf(query.runId()));
    out.append("{\"query_id\":\"").append(query.id());
    out.append("\",\"batch_id\":").append(latest.isEmpty() ? "-1" : String.valueOf(latest.get()));
    out.append(",\"state_rows\":").append(stateOf(seen, false));
    out.append(",\"state_bytes\":").append(stateOf(seen, true)).append('}');
  }

  /** The one query that the session runs; null for none, or several. */
  static StreamingQuery runningOf(SharedState state, SparkContext context) {
    StreamingQuery found = null;
    Object[] running = state.activeStreamingQueries().values().toArray();
    for (int i = 0; i < running.length; i++) {
      StreamingQuery query = (StreamingQuery) running[i];
      if (query.sparkSession().sparkContext() == context) {
        if (found != null) {
          return null;
        }
        found = query;
      }
    }
    return found;
  }

  /** A text as JSON. */
  static String quoted(String text) {
    StringBuilder out = new StringBuilder("\"");
    for (int i = 0; i < text.length(); i++) {
      char one = text.charAt(i);
      if (one == '"' || one == '\\') {
        out.append('\\').append(one);
      } else if (one < ' ') {
        out.append(' ');
      } else {
        out.append(one);
      }
    }
    return out.append('"').toString();
  }

  private static Seen seenOf(String tag, String runId) {
    SlotStreams streams = (SlotStreams) FOLLOWED.get(tag);
    return streams == null ? null : (Seen) streams.queries.get(runId);
  }

  private static long stateOf(Seen seen, boolean inBytes) {
    StreamingQueryProgress last = seen == null ? null : seen.last;
    StateOperatorProgress[] operators = last == null ? new StateOperatorProgress[0] : last.stateOperators();
    long sum = 0;
    for (int i = 0; i < operators.length; i++) {
      sum += inBytes ? operators[i].memoryUsedBytes() : operators[i].numRowsTotal();
    }
    return sum;
  }

  /** All queries of all followed sessions that have not ended, as a JSON list; "" when there is none. */
  public static String read() {
    if (FOLLOWED.isEmpty()) {
      return "";
    }
    StringBuilder out = new StringBuilder();
    for (Iterator it = FOLLOWED.entrySet().iterator(); it.hasNext(); ) {
      Map.Entry entry = (Map.Entry) it.next();
      ((SlotStreams) entry.getValue()).write((String) entry.getKey(), out);
    }
    return out.length() == 0 ? "" : out.append(']').toString();
  }

  private void write(String tag, StringBuilder out) {
    for (Iterator it = queries.entrySet().iterator(); it.hasNext(); ) {
      Map.Entry entry = (Map.Entry) it.next();
      Seen seen = (Seen) entry.getValue();
      synchronized (seen) {
        if (!seen.isEnded) {
          out.append(out.length() == 0 ? "[" : ",");
          out.append("{\"tag\":\"").append(tag);
          out.append("\",\"run_id\":\"").append(entry.getKey());
          out.append("\",\"query_id\":\"").append(seen.id);
          out.append("\",\"batches\":").append(seen.batches);
          out.append(",\"rows\":").append(seen.rows);
          out.append(",\"has_triggered\":").append(seen.hasTriggered);
          out.append(",\"is_idle\":").append(seen.isIdle);
          out.append(",\"busy_since\":").append(busySince(seen));
          out.append(",\"committed\":").append(seen.last == null || seen.commitsLater ? -1 : seen.last.batchId());
          out.append(",\"progress\":").append(seen.last == null ? "null" : seen.last.json()).append('}');
        }
      }
    }
  }
}
