package org.apache.hadoop.fs;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.Fields;
import org.apache.spark.SlotSession;

/**
 * Hadoop's cache of opened file systems, in which a session finds its own only (R22): they are found by scheme, host and
 * user, and hold the conf, so the keys, of the code that opened them. Local ones hold nothing, and all sessions share them.
 */
public final class SlotFileSystems extends HashMap {
  private SlotFileSystems(Map opened) {
    super(opened);
  }

  /** From now on file systems that a session opens are its own. */
  public static void install() throws Exception {
    synchronized (FileSystem.CACHE) {
      Fields.set(FileSystem.Cache.class, FileSystem.CACHE, "map", new SlotFileSystems(opened()));
    }
  }

  /** Each look into the cache begins here, with a key of its own: it is made the session's before it is kept. */
  public Object get(Object looked) {
    FileSystem.Cache.Key key = (FileSystem.Cache.Key) looked;
    if (key.unique == 0L && !"file".equals(key.scheme)) {
      SlotSession session = SlotSession.current();
      if (session != null) {
        mark(key, session.hadoop().fileSystems());
      }
    }
    return super.get(key);
  }

  /** What was opened with credentials of before is kept under a key that no look uses: see fileSystemsFor. */
  public Object put(Object kept, Object opened) {
    FileSystem.Cache.Key key = (FileSystem.Cache.Key) kept;
    SlotSession session = key.unique < 0L ? SlotSession.current() : null;
    if (session != null && key.unique == session.hadoop().fileSystems() && ((FileSystem) opened).getConf() != null) {
      mark(key, session.hadoop().fileSystemsFor(((FileSystem) opened).getConf()));
    }
    return super.put(key, opened);
  }

  private static void mark(FileSystem.Cache.Key key, long number) {
    try {
      Fields.set(FileSystem.Cache.Key.class, key, "unique", Long.valueOf(number));
    } catch (Exception error) {
      throw new IllegalStateException("a file system of mark " + number, error);
    }
  }

  private static Map opened() throws Exception {
    return (Map) Fields.get(FileSystem.Cache.class, FileSystem.CACHE, "map");
  }

  /** How many are open. */
  public static int count() throws Exception {
    synchronized (FileSystem.CACHE) {
      return opened().size();
    }
  }

  /** Close those of a session; how many there were. */
  public static int close(long number) throws Exception {
    List found = new ArrayList();
    synchronized (FileSystem.CACHE) {
      for (Iterator it = opened().entrySet().iterator(); it.hasNext(); ) {
        Map.Entry entry = (Map.Entry) it.next();
        if (((FileSystem.Cache.Key) entry.getKey()).unique == number) {
          found.add(entry.getValue());
        }
      }
    }
    for (Iterator it = found.iterator(); it.hasNext(); ) {
      try {
        ((FileSystem) it.next()).close();
      } catch (IOException error) {
        System.err.println("closing a file system of an ended session: " + error); // the JVM's log
      }
    }
    return found.size();
  }
}
