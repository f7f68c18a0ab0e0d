package org.apache.spark;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.classic.SparkSession;

/**
 * What all jobs share in this JVM without being asked (R45): noted before the first one, compared when one rests, put back
 * when no session works. A session works from its `begin` until it rests, or is settled after its end; one that works when a
 * change is seen may have made it. No session begins to work in a JVM that is seen to be changed. In a JVM of one job nothing is
 * noted: what it changes there is its own.
 */
public final class JvmState {
  private static final int SHOWN_MAX = 20;
  private static final long WAIT_MILLIS = 60000;

  private static List parts = Collections.EMPTY_LIST;
  private static Map[] noted = new Map[0];
  private static final Map WORKING = new LinkedHashMap(); // session -> its job
  private static boolean isChanged;
  private static long changedAt;
  private static long opened; // the number of the last session that was opened before the last look at which all was well

  private JvmState() {}

  private static final class Change {
    final JvmPart part;
    final String key;
    final Object was;
    final Object is;

    Change(JvmPart part, String key, Object was, Object is) {
      this.part = part;
      this.key = key;
      this.was = was;
      this.is = is;
    }
  }

  /** From here on this is how it has to be. */
  public static synchronized void note(SparkContext original, SparkSession base) throws Exception {
    parts = JvmParts.all(original, base);
    noted = new Map[parts.size()];
    for (int i = 0; i < noted.length; i++) {
      noted[i] = new HashMap(((JvmPart) parts.get(i)).read());
    }
    opened = SlotSession.lastNumber();
  }

  /** False for the JVM of one job. */
  static synchronized boolean isShared() {
    return noted.length > 0;
  }

  /** The session begins to work for a job. False when the JVM has stayed changed for long: others still work in it. */
  static synchronized boolean begin(SlotSession session, String job) throws InterruptedException {
    long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(WAIT_MILLIS);
    while (isChanged) {
      long left = TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime());
      if (left <= 0) {
        return false;
      }
      JvmState.class.wait(left);
    }
    WORKING.put(session, job);
    return true;
  }

  /** True if the session, of which nothing runs now, leaves the JVM as it was: then it does not work any more. */
  static synchronized boolean rests(SlotSession session) throws Exception {
    if (isChanged || changes().size() > 0) {
      return false;
    }
    WORKING.remove(session);
    return true;
  }

  /**
   * The session has ended: what it may have changed, "" for nothing. Else the first line says what became of that
   * ("restored"; "waits" for others to end; "spent", when this JVM must not be used any more), the second one which other
   * jobs may have done it, each further one a change.
   */
  static synchronized String settle(SlotSession session) throws Exception {
    boolean mayHave = WORKING.remove(session) != null || WORKING.isEmpty();
    List found = changes();
    if (found.isEmpty()) {
      open();
      return "";
    }
    String outcome;
    if (WORKING.size() > 0) {
      outcome = "waits";
    } else {
      outcome = restore(found) ? "restored" : "spent";
    }
    if ("restored".equals(outcome)) {
      open();
    } else if (!isChanged) {
      isChanged = true;
      changedAt = System.nanoTime();
    }
    return told(outcome, mayHave ? found : Collections.EMPTY_LIST);
  }

  /**
   * What has become of a change for which others are waited for: "" when it is put back, "waits" while they have time. After
   * `millis` it is put back under them, if it can be; then told as by `settle`.
   */
  public static synchronized String putBack(long millis) throws Exception {
    if (!isChanged) {
      return "";
    }
    List found = changes();
    if (WORKING.size() > 0 && System.nanoTime() - changedAt >= TimeUnit.MILLISECONDS.toNanos(millis) && restore(found)) {
      open();
      return told("restored", found);
    }
    return "waits";
  }

  private static String told(String outcome, List found) {
    StringBuilder told = new StringBuilder(outcome).append('\n');
    Set jobs = new HashSet(WORKING.values());
    told.append(String.join(",", jobs));
    for (int i = 0; i < found.size() && i < SHOWN_MAX; i++) {
      Change change = (Change) found.get(i);
      told.append('\n').append(change.part.words(change.key, change.was, change.is));
    }
    if (found.size() > SHOWN_MAX) {
      told.append('\n').append(found.size() - SHOWN_MAX).append(" more");
    }
    return told.toString();
  }

  /** All is well: sessions that wait may begin. */
  private static void open() {
    isChanged = false;
    JvmState.class.notifyAll();
  }

  private static boolean restore(List found) throws Exception {
    for (int i = 0; i < found.size(); i++) {
      if (((Change) found.get(i)).part.isCopied() && SlotSession.isAnyNewerThan(opened)) {
        return false; // it may have been opened with the change
      }
    }
    try {
      for (int i = 0; i < found.size(); i++) {
        Change change = (Change) found.get(i);
        change.part.write(change.key, change.was);
      }
    } catch (Exception error) {
      System.err.println("what a job has changed in this JVM is not put back: " + error); // the JVM's log
      return false;
    }
    return changes().isEmpty();
  }

  /** How the JVM differs from what was noted. */
  private static List changes() throws Exception {
    List found = new ArrayList();
    for (int i = 0; i < noted.length; i++) {
      JvmPart part = (JvmPart) parts.get(i);
      Map now = part.read();
      if (!noted[i].equals(now)) {
        compare(part, noted[i], new HashMap(now), found);
      }
    }
    if (found.isEmpty()) {
      opened = SlotSession.lastNumber();
    }
    return found;
  }

  private static void compare(JvmPart part, Map was, Map now, List found) {
    Set keys = new HashSet(was.keySet());
    keys.addAll(now.keySet());
    for (Iterator it = keys.iterator(); it.hasNext(); ) {
      Object key = it.next();
      Object before = was.get(key);
      Object after = now.get(key);
      if (before == null ? after != null : !before.equals(after)) {
        if (part.isOwn(String.valueOf(key))) {
          if (after == null) {
            was.remove(key);
          } else {
            was.put(key, after);
          }
        } else {
          found.add(new Change(part, (String) key, before, after));
        }
      }
    }
  }
}
