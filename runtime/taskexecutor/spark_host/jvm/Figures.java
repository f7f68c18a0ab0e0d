package org.apache.spark;

import java.lang.management.ManagementFactory;
import java.util.LinkedHashMap;
import java.util.Map;
import javax.management.ObjectName;
import org.apache.hadoop.fs.SlotFileSystems;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;

/** What must not grow with the number of jobs (R25), counted after a garbage collection. */
public final class Figures {
  private Figures() {}

  public static Map read(SparkContext original) throws Exception {
    System.gc();
    String histogram = (String) ManagementFactory.getPlatformMBeanServer().invoke(
        new ObjectName("com.sun.management:type=DiagnosticCommand"),
        "gcClassHistogram",
        new Object[] {new String[0]},
        new String[] {String[].class.getName()});
    Map found = new LinkedHashMap();
    Runtime runtime = Runtime.getRuntime();
    found.put("heap_bytes", Long.valueOf(runtime.totalMemory() - runtime.freeMemory()));
    found.put("threads", Integer.valueOf(ManagementFactory.getThreadMXBean().getThreadCount()));
    found.put("unnamed_threads", Integer.valueOf(unnamedThreads()));
    found.put("classes", Integer.valueOf(ManagementFactory.getClassLoadingMXBean().getLoadedClassCount()));
    found.put("listeners", Integer.valueOf(original.listenerBus().listeners().size()));
    found.put("open_sessions", Integer.valueOf(SlotSession.openCount()));
    found.put("job_catalogs", Integer.valueOf(SlotCatalogs.count()));
    found.put("sessions", Long.valueOf(instances(histogram, "org.apache.spark.sql.classic.SparkSession")));
    found.put("contexts", Long.valueOf(instances(histogram, SlotContext.class.getName())));
    found.put("gateways", Long.valueOf(instances(histogram, SlotGateway.class.getName())));
    found.put("worker_pools", Integer.valueOf(WorkerPools.count()));
    found.put("worker_monitors", Integer.valueOf(WorkerPools.monitors().size()));
    found.put("file_systems", Integer.valueOf(SlotFileSystems.count()));
    found.put("storage_bytes", Long.valueOf(storage(original)));
    return found;
  }

  /** Memory that blocks take in all executors. */
  private static long storage(SparkContext original) {
    long used = 0;
    Object[] executors = CollectionConverters.asJava(original.getExecutorMemoryStatus()).values().toArray();
    for (int i = 0; i < executors.length; i++) {
      Tuple2 sizes = (Tuple2) executors[i];
      used += ((Long) sizes._1()).longValue() - ((Long) sizes._2()).longValue();
    }
    return used;
  }

  /** Those that serve connections of py4j are among them, Spark's own are not. */
  private static int unnamedThreads() {
    int found = 0;
    Object[] threads = Thread.getAllStackTraces().keySet().toArray();
    for (int i = 0; i < threads.length; i++) {
      found += ((Thread) threads[i]).getName().startsWith("Thread-") ? 1 : 0;
    }
    return found;
  }

  /** A line of the histogram: "  12:   345   6789  name (module)". */
  private static long instances(String histogram, String name) {
    String[] lines = histogram.split("\n");
    for (int i = 0; i < lines.length; i++) {
      String[] parts = lines[i].trim().split("\\s+");
      if (parts.length >= 4 && parts[3].equals(name)) {
        return Long.parseLong(parts[1]);
      }
    }
    return 0;
  }
}
