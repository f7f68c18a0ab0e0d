package org.apache.spark;

import java.util.Iterator;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.internal.SharedState;
import org.apache.spark.sql.streaming.SourceProgress;
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

  /** How long what a thread was seen in is told before it is looked at again: each look may be news for all who watch. */
  private static final long LOOK_AGAIN = 10000L;

  private static final int FRAMES_MAX = 5;

  private static final int SOURCES_MAX = 100;

  private static final int SOURCE_LENGTH_MAX = 10000;

  private final Map queries = new ConcurrentHashMap();
  private final Map sessions = new ConcurrentHashMap();
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
    long interval = -1; // of its trigger, in milliseconds; 0 for one without, -1 before the first look
    String thread = "";
    long threadMillis; // when the thread was looked at
    volatile long movedMillis = System.currentTimeMillis(); // the end of a batch, of a look that found nothing, or a pause
    StreamingQueryProgress last;
    long batchesBefore; // of earlier runs of the query in this session: it was held, and went on
    long rowsBefore;
    StreamingQueryProgress lastBefore;
    long logged = -1; // the last batch in its commit log, when it was looked at first
    boolean isRead; // was the commit log looked at?

    StreamingQueryProgress shown() {
      return last == null ? lastBefore : last;
    }
  }

  /** Follow all queries that a session will start; of a script there may be several with this tag. Idempotent. */
  static void follow(String tag, org.apache.spark.sql.classic.SparkSession session) {
    SlotStreams made = new SlotStreams(session.sharedState());
    SlotStreams known = (SlotStreams) FOLLOWED.putIfAbsent(tag, made);
    SlotStreams streams = known == null ? made : known;
    if (streams.sessions.putIfAbsent(session, Boolean.TRUE) == null) {
      session.streams().addListener(streams);
    }
  }

  static void forget(String tag) {
    FOLLOWED.remove(tag);
    ScriptQueries.forget(tag);
  }

  public void onQueryStarted(QueryStartedEvent event) {
    Seen seen = of(String.valueOf(event.runId()));
    seen.id = String.valueOf(event.id());
    seen.name = event.name();
    for (Iterator it = queries.values().iterator(); it.hasNext(); ) {
      Seen other = (Seen) it.next();
      if (other != seen && other.isEnded && seen.id.equals(other.id) && other.batchesBefore + other.batches >= seen.batchesBefore) {
        seen.batchesBefore = other.batchesBefore + other.batches;
        seen.rowsBefore = other.rowsBefore + other.rows;
        seen.lastBefore = other.shown();
      }
    }
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
  private long busySince(Seen seen, StreamingQuery query) {
    long now = System.currentTimeMillis();
    if (query == null || !query.status().isTriggerActive()) {
      seen.movedMillis = now;
    }
    return now - seen.movedMillis > LONG_TRIGGER ? seen.movedMillis : 0;
  }

  private StreamingQuery running(Seen seen) {
    return seen.id == null ? null : (StreamingQuery) state.activeStreamingQueries().get(UUID.fromString(seen.id));
  }

  /** The interval of its trigger, 0 for one without. By reflection, since classes of triggers have moved between versions. */
  private static long interval(StreamingQuery query) throws Exception {
    Object trigger = HeldQueries.call(query, "trigger");
    if (!trigger.getClass().getName().endsWith(".ProcessingTimeTrigger")) {
      return 0;
    }
    return ((Number) trigger.getClass().getMethod("intervalMs", new Class[0]).invoke(trigger, new Object[0])).longValue();
  }

  /** The query's thread: its name, its state, and the first methods of its stack that are none of Java or Scala. */
  private static String look(Thread thread) {
    String name = thread.getName();
    int ids = name.indexOf(" [id = ");
    StringBuilder out = new StringBuilder(ids < 0 ? name : name.substring(0, ids));
    out.append(", ").append(thread.getState());
    StackTraceElement[] frames = thread.getStackTrace();
    int told = 0;
    for (int i = 0; i < frames.length && told < FRAMES_MAX; i++) {
      String of = frames[i].getClassName();
      if (!of.startsWith("java.") && !of.startsWith("jdk.") && !of.startsWith("sun.") && !of.startsWith("scala.")) {
        out.append(told++ == 0 ? " in " : " < ").append(of.substring(of.lastIndexOf('.') + 1));
        out.append('.').append(frames[i].getMethodName()).append(':').append(frames[i].getLineNumber());
      }
    }
    return out.toString();
  }

  /** What a query hangs in that is in one trigger since then; "" for one that is not. */
  private static String hangsIn(Seen seen, StreamingQuery query, long since) throws Exception {
    long now = System.currentTimeMillis();
    if (since == 0 || query == null) {
      seen.thread = "";
    } else if (seen.thread.isEmpty() || now - seen.threadMillis > LOOK_AGAIN) {
      seen.thread = look((Thread) HeldQueries.call(query, "queryExecutionThread"));
      seen.threadMillis = now;
    }
    return seen.thread;
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

  /** The last batch that is committed for good, -1 for none: that of its progress, else, of one that goes on, of its log. */
  private static long committed(Seen seen, StreamingQuery query) throws Exception {
    if (seen.last != null) {
      return seen.commitsLater ? -1 : seen.last.batchId();
    }
    if (!seen.isRead && query != null) {
      Option latest = latestOf(query);
      seen.logged = latest.isEmpty() ? -1 : ((Number) latest.get()).longValue();
      seen.isRead = true;
    }
    return seen.logged;
  }

  private static Option latestOf(StreamingQuery query) throws Exception {
    Object log = HeldQueries.call(query, "commitLog");
    return (Option) log.getClass().getMethod("getLatestBatchId", new Class[0]).invoke(log, new Object[0]);
  }

  static void position(String tag, StreamingQuery query, StringBuilder out) throws Exception {
    Option latest = latestOf(query);
    Seen seen = seenOf(tag, String.valueOf(query.runId()));
    out.append("{\"query_id\":\"").append(query.id());
    out.append("\",\"batch_id\":").append(latest.isEmpty() ? "-1" : String.valueOf(latest.get()));
    out.append(",\"state_rows\":").append(stateOf(seen, false));
    out.append(",\"state_bytes\":").append(stateOf(seen, true)).append('}');
  }

  /** What a query reads, in Spark's words and in the order in which it reads, as a JSON list: as far as it knows it by now. */
  static void sources(String tag, StreamingQuery query, StringBuilder out) throws Exception {
    Seen seen = seenOf(tag, String.valueOf(query.runId()));
    StreamingQueryProgress last = seen == null ? null : seen.shown();
    out.append('[');
    if (last != null) {
      SourceProgress[] told = last.sources();
      for (int i = 0; i < told.length && i < SOURCES_MAX; i++) {
        out.append(i == 0 ? "" : ",").append(quoted(cut(told[i].description())));
      }
    } else { // it was started again, and has had nothing to read
      scala.collection.Iterator it = ((scala.collection.Iterable) HeldQueries.call(query, "sources")).iterator();
      for (int i = 0; it.hasNext() && i < SOURCES_MAX; i++) {
        out.append(i == 0 ? "" : ",").append(quoted(cut(String.valueOf(it.next()))));
      }
    }
    out.append(']');
  }

  private static String cut(String text) {
    return text.length() <= SOURCE_LENGTH_MAX ? text : text.substring(0, SOURCE_LENGTH_MAX);
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
    StreamingQueryProgress last = seen == null ? null : seen.shown();
    StateOperatorProgress[] operators = last == null ? new StateOperatorProgress[0] : last.stateOperators();
    long sum = 0;
    for (int i = 0; i < operators.length; i++) {
      sum += inBytes ? operators[i].memoryUsedBytes() : operators[i].numRowsTotal();
    }
    return sum;
  }

  /** All queries of all followed sessions that have not ended, as a JSON list; "" when there is none. */
  public static String read() throws Exception {
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

  private void write(String tag, StringBuilder out) throws Exception {
    for (Iterator it = queries.entrySet().iterator(); it.hasNext(); ) {
      Map.Entry entry = (Map.Entry) it.next();
      Seen seen = (Seen) entry.getValue();
      synchronized (seen) {
        if (!seen.isEnded) {
          StreamingQuery query = running(seen);
          long since = busySince(seen, query);
          if (seen.interval < 0 && query != null) {
            seen.interval = interval(query);
          }
          out.append(out.length() == 0 ? "[" : ",");
          out.append("{\"tag\":\"").append(tag);
          out.append("\",\"run_id\":\"").append(entry.getKey());
          out.append("\",\"query_id\":\"").append(seen.id);
          out.append("\",\"batches\":").append(seen.batchesBefore + seen.batches);
          out.append(",\"rows\":").append(seen.rowsBefore + seen.rows);
          out.append(",\"has_triggered\":").append(seen.hasTriggered);
          out.append(",\"is_idle\":").append(seen.isIdle);
          out.append(",\"busy_since\":").append(since);
          out.append(",\"interval\":").append(Math.max(0, seen.interval));
          out.append(",\"thread\":").append(quoted(hangsIn(seen, query, since)));
          out.append(",\"name\":").append(quoted(seen.name == null ? "" : seen.name));
          out.append(",\"committed\":").append(committed(seen, query));
          out.append(",\"progress\":").append(seen.shown() == null ? "null" : seen.shown().json()).append('}');
        }
      }
    }
  }
}
