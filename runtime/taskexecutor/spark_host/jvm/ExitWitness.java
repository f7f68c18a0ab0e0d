package org.apache.spark;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Iterator;
import java.util.Map;
import org.apache.hadoop.util.ShutdownHookManager;

/** Writes down which session's call ends the JVM (R23). It runs when the JVM exits, before Spark stops anything. */
public final class ExitWitness extends Thread {
  /** Hooks run one after the other, the highest first; the one that stops the SparkContext has 40. */
  private static final int BEFORE_SPARK = 1000;

  /** What stands between a caller and the exit: the exit itself, and ways to call it by name. */
  private static final String[] WAYS = {
    "java.lang.Shutdown", "java.lang.Runtime", "java.lang.System", "java.lang.invoke.", "java.lang.reflect.",
    "jdk.internal.", "scala.sys."
  };

  private final Path file;

  private ExitWitness(Path file) {
    super("exit-witness");
    this.file = file;
  }

  /** From now on an exit leaves three lines in the file: the tag of its session or nothing, its thread, its caller. */
  public static void install(String file) {
    ShutdownHookManager.get().addShutdownHook(new ExitWitness(Paths.get(file, new String[0])), BEFORE_SPARK);
  }

  public void run() {
    try {
      for (Iterator it = Thread.getAllStackTraces().entrySet().iterator(); it.hasNext(); ) {
        Map.Entry entry = (Map.Entry) it.next();
        StackTraceElement[] stack = (StackTraceElement[]) entry.getValue();
        if (isExiting(stack)) {
          write((Thread) entry.getKey(), stack);
          return;
        }
      }
    } catch (Exception error) {
      error.printStackTrace(); // the JVM's log; there is no other way any more
    }
  }

  private void write(Thread thread, StackTraceElement[] stack) throws Exception {
    SlotSession session = SlotSession.of(thread);
    String tag = session == null ? "" : session.tag();
    String text = tag + "\n" + thread.getName().replace('\n', ' ') + "\n" + callerIn(stack) + "\n";
    Files.write(file, text.getBytes(StandardCharsets.UTF_8), new java.nio.file.OpenOption[0]);
  }

  /** Of all that call exit, one runs the hooks, and the others wait for it for ever. */
  private static boolean isExiting(StackTraceElement[] stack) {
    for (int i = 0; i < stack.length; i++) {
      if (stack[i].getClassName().equals("java.lang.Shutdown") && stack[i].getMethodName().equals("runHooks")) {
        return true;
      }
    }
    return false;
  }

  private static String callerIn(StackTraceElement[] stack) {
    boolean isOutside = false;
    for (int i = 0; i < stack.length; i++) {
      boolean isWay = isWay(stack[i].getClassName());
      if (isOutside && !isWay) {
        return stack[i].getClassName() + "." + stack[i].getMethodName();
      }
      isOutside |= stack[i].getClassName().equals("java.lang.Shutdown");
    }
    return "";
  }

  private static boolean isWay(String name) {
    for (int i = 0; i < WAYS.length; i++) {
      if (name.startsWith(WAYS[i])) {
        return true;
      }
    }
    return false;
  }
}
