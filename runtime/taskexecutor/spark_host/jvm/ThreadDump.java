package org.apache.spark;

import java.lang.management.ManagementFactory;
import javax.management.ObjectName;

/** What {@code jstack} prints of this JVM, without a JDK and without an attach from outside. */
public final class ThreadDump {
  private ThreadDump() {}

  /** The stacks of all threads with the locks that they hold; at most so many characters. */
  public static String read(int lengthMax) throws Exception {
    String text = (String) ManagementFactory.getPlatformMBeanServer().invoke(
        new ObjectName("com.sun.management:type=DiagnosticCommand"),
        "threadPrint",
        new Object[] {new String[0]},
        new String[] {String[].class.getName()});
    return text.substring(0, Math.min(text.length(), lengthMax));
  }
}
