package org.apache.spark;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Iterator;
import java.util.Map;
import org.apache.hadoop.util.ShutdownHookManager;

/** Writes down whose call ends the JVM (R23). It runs when the JVM exits, before anything of Spark is gone. */
public final class ExitWitness extends Thread {
  /** Hooks run one after the other, the highest first; the one that stops the SparkContext has 40. */
  private static final int BEFORE_SPARK = 1000;

  private final Path file;

  private ExitWitness(Path file) {
    super("exit-witness");
    this.file = file;
  }

  /** From now on an exit that a session calls leaves the session's tag in the file. */
  public static void install(String file) {
    ShutdownHookManager.get().addShutdownHook(new ExitWitness(Paths.get(file, new String[0])), BEFORE_SPARK);
  }

  public void run() {
    try {
      SlotSession session = caller();
      if (session != null) {
        Files.write(file, session.tag().getBytes(StandardCharsets.UTF_8), new java.nio.file.OpenOption[0]);
      }
    } catch (Exception error) {
      error.printStackTrace(); // the JVM's log; nobody can be told any more
    }
  }

  private static SlotSession caller() throws Exception {
    for (Iterator it = Thread.getAllStackTraces().entrySet().iterator(); it.hasNext(); ) {
      Map.Entry entry = (Map.Entry) it.next();
      StackTraceElement[] stack = (StackTraceElement[]) entry.getValue();
      for (int i = 0; i < stack.length; i++) {
        if (stack[i].getClassName().equals("java.lang.Shutdown") && stack[i].getMethodName().equals("exit")) {
          return SlotSession.servedBy((Thread) entry.getKey());
        }
      }
    }
    return null;
  }
}
