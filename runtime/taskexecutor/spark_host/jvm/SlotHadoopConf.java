package org.apache.spark;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.SlotFileSystems;
import org.apache.spark.sql.internal.SharedState;

/** Hadoop's conf of one session, the credentials in it (R51), and which file systems were opened with them. */
public final class SlotHadoopConf {
  private static final String GENERATION = "flinklike.credentials.generation";

  private final Configuration shared;
  private final SlotContext context;
  private final SharedState state;
  private final Set configured = Collections.synchronizedSet(new HashSet());
  private Map given = Collections.EMPTY_MAP;
  private int generation;
  private boolean hasOldFileSystems;
  private final List formerFileSystems = new ArrayList();
  private long fileSystems;

  /** `number` marks the first file systems. `shared`: what holds where the session sets nothing. */
  SlotHadoopConf(long number, Configuration shared, SlotContext context, SharedState state) {
    this.fileSystems = number;
    this.shared = shared;
    this.context = context;
    this.state = state;
  }

  /** Set a key for the job: credentials do not replace it. */
  void configure(String key, String value) {
    configured.add(key);
    set(key, value);
  }

  private void set(String key, String value) {
    context.hadoopConfiguration().set(key, value);
    state.hadoopConf().set(key, value);
  }

  /**
   * Keys of Hadoop's conf with credentials of services outside, for what is planned from here on (R51). They replace
   * earlier credentials, and leave what the job itself has set. Not in the conf of its SQL, which is shown and logged.
   */
  synchronized void give(Map values) {
    for (Iterator it = given.keySet().iterator(); it.hasNext(); ) {
      String key = (String) it.next();
      if (!values.containsKey(key) && !configured.contains(key)) {
        String before = shared.get(key);
        if (before == null) {
          context.hadoopConfiguration().unset(key);
          state.hadoopConf().unset(key);
        } else {
          set(key, before);
        }
      }
    }
    for (Iterator it = values.entrySet().iterator(); it.hasNext(); ) {
      Map.Entry entry = (Map.Entry) it.next();
      if (!configured.contains(entry.getKey())) {
        set((String) entry.getKey(), (String) entry.getValue());
      }
    }
    given = new HashMap(values);
    generation++;
    set(GENERATION, String.valueOf(generation));
    hasOldFileSystems = true;
  }

  /**
   * Have file systems that were opened with credentials of before found no more; they are closed with the session. Only
   * when nothing of it runs, which may be using them; false: not yet.
   */
  synchronized boolean renewFileSystems(SlotSession session) {
    if (!hasOldFileSystems) {
      return true;
    }
    if (session.hasActiveJobs()) {
      return false;
    }
    hasOldFileSystems = false;
    formerFileSystems.add(Long.valueOf(fileSystems));
    fileSystems = SlotSession.nextNumber();
    return true;
  }

  /** What marks file systems of the session that are to be found. */
  public synchronized long fileSystems() {
    return fileSystems;
  }

  /** What marks one that was opened with that conf: one of its own, where others shall not find its credentials. */
  public synchronized long fileSystemsFor(Configuration conf) {
    if (generation == 0 || hasOldFileSystems || String.valueOf(generation).equals(conf.get(GENERATION))) {
      return fileSystems;
    }
    long single = SlotSession.nextNumber();
    formerFileSystems.add(Long.valueOf(single));
    return single;
  }

  synchronized void closeFileSystems() throws Exception {
    for (Iterator it = formerFileSystems.iterator(); it.hasNext(); ) {
      SlotFileSystems.close(((Long) it.next()).longValue());
    }
    SlotFileSystems.close(fileSystems);
  }
}
