package org.apache.spark;

import org.codehaus.janino.ClassBodyEvaluator;

/**
 * What the first session and the first query of each JVM wait for, prepared beside the start of the context: functions
 * of MLlib, which Scala's reflection looks through for seconds, and the compiler of Spark's generated code. Classes of
 * Spark SQL initialise each other in circles, so two threads that did it could wait for each other: the session is made
 * when this has ended, and nothing that stands here is used by the start of a context.
 */
public final class EarlyClasses extends Thread {
  private static final String[] NAMES = {"org.apache.spark.sql.ml.InternalFunctionRegistration$"};
  private static final String BODY =
      "public static long sum(int[] numbers) { long all = 0; for (int i = 0; i < numbers.length; i++) {"
          + " all += numbers[i]; } return all; }";

  private static EarlyClasses only;

  private String problems = "";

  private EarlyClasses() {
    super(null, null, "early-classes", 0L, false);
    setDaemon(true);
  }

  /** Begin, once per JVM. */
  public static synchronized void begin() {
    if (only == null) {
      only = new EarlyClasses();
      only.start();
    }
  }

  /** Wait for the end. The answer says what could not be prepared: its first user will find out why. */
  public static String end() throws InterruptedException {
    only.join();
    return only.problems;
  }

  public void run() {
    for (int i = 0; i < NAMES.length; i++) {
      try {
        Class.forName(NAMES[i]);
      } catch (Throwable problem) {
        problems += NAMES[i] + ": " + problem + "; ";
      }
    }
    try {
      new ClassBodyEvaluator(BODY);
    } catch (Throwable problem) {
      problems += "the compiler: " + problem;
    }
  }
}
