package org.apache.hadoop.fs;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkContext$;
import org.apache.spark.TaskContext;
import scala.Option;

/**
 * R24: the working directory of the job that the calling thread works for. A Spark local property names a symbolic link,
 * which the session's process makes once, when its first job touches Spark: sessions are opened before there is a job.
 * Threads of a slot inherit the property, tasks carry it.
 */
public final class SlotDirectory {
  /** The local property. */
  public static final String PROPERTY = "flinklike.working-directory";

  private static final int KNOWN_MAX = 1000;
  private static final Map KNOWN = new ConcurrentHashMap();

  private SlotDirectory() {}

  /** The directory, or `otherwise` for a thread of no job. */
  public static Path orElse(Path otherwise) {
    String link = link();
    if (link == null) {
      return otherwise;
    }
    Path known = (Path) KNOWN.get(link);
    if (known != null) {
      return known;
    }
    return read(link, otherwise);
  }

  private static String link() {
    TaskContext task = TaskContext.get();
    if (task != null) {
      return task.getLocalProperty(PROPERTY);
    }
    Option context = SparkContext$.MODULE$.getActive();
    return context.isEmpty() ? null : ((SparkContext) context.get()).getLocalProperty(PROPERTY);
  }

  private static Path read(String link, Path otherwise) {
    Path found;
    try {
      found = new Path("file", null, Files.readSymbolicLink(Paths.get(link, new String[0])).toString());
    } catch (IOException error) {
      // Not made yet, or made on another host: the thread works for no job that is known here.
      return otherwise;
    }
    if (KNOWN.size() >= KNOWN_MAX) {
      KNOWN.clear();
    }
    KNOWN.put(link, found);
    return found;
  }
}
