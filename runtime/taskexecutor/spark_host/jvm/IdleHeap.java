package org.apache.spark;

import com.sun.management.HotSpotDiagnosticMXBean;
import java.lang.management.ManagementFactory;
import javax.management.JMException;
import javax.management.ObjectName;

/** The heap of a JVM that nobody uses. */
public final class IdleHeap {
  private static final String[] RATIOS = {"MinHeapFreeRatio", "MaxHeapFreeRatio"};
  private static final String[] TIGHT = {"10", "20"};

  private static final String COMMANDS = "com.sun.management:type=DiagnosticCommand";

  private IdleHeap() {}

  /** Collect garbage and give the operating system what is free then. It grows again at once when jobs need it. */
  public static void trim() {
    HotSpotDiagnosticMXBean options =
        (HotSpotDiagnosticMXBean) ManagementFactory.getPlatformMXBean(HotSpotDiagnosticMXBean.class);
    String[] before = new String[RATIOS.length];
    for (int i = 0; i < RATIOS.length; i++) {
      before[i] = options.getVMOption(RATIOS[i]).getValue();
    }
    try {
      for (int i = 0; i < RATIOS.length; i++) {
        options.setVMOption(RATIOS[i], TIGHT[i]);
      }
      System.gc();
    } finally {
      for (int i = RATIOS.length - 1; i >= 0; i--) {
        options.setVMOption(RATIOS[i], before[i]);
      }
    }
    trimNative();
  }

  /** The same for memory that the compilers have freed; 20 to 30 MB after the start. A Java without it keeps that. */
  private static void trimNative() {
    try {
      ManagementFactory.getPlatformMBeanServer()
          .invoke(new ObjectName(COMMANDS), "systemTrimNativeHeap", new Object[0], new String[0]);
    } catch (JMException missing) {
      System.err.println("memory that is free outside of the heap stays: " + missing);
    }
  }
}
