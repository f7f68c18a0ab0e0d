package org.apache.spark;

import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryMXBean;
import java.lang.management.MemoryUsage;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Heap and garbage collection of this JVM, without a collection: for people who look at it. */
public final class JvmFigures {
  private JvmFigures() {}

  public static Map read() {
    MemoryMXBean memory = ManagementFactory.getMemoryMXBean();
    MemoryUsage heap = memory.getHeapMemoryUsage();
    Map found = new LinkedHashMap();
    found.put("heap_used", Long.valueOf(heap.getUsed()));
    found.put("heap_committed", Long.valueOf(heap.getCommitted()));
    found.put("heap_max", Long.valueOf(heap.getMax()));
    found.put("non_heap_used", Long.valueOf(memory.getNonHeapMemoryUsage().getUsed()));
    found.put("threads", Long.valueOf(ManagementFactory.getThreadMXBean().getThreadCount()));
    long count = 0;
    long millis = 0;
    List collectors = ManagementFactory.getGarbageCollectorMXBeans();
    for (int i = 0; i < collectors.size(); i++) {
      GarbageCollectorMXBean one = (GarbageCollectorMXBean) collectors.get(i);
      count += Math.max(0, one.getCollectionCount());
      millis += Math.max(0, one.getCollectionTime());
    }
    found.put("gc_count", Long.valueOf(count));
    found.put("gc_millis", Long.valueOf(millis));
    return found;
  }
}
