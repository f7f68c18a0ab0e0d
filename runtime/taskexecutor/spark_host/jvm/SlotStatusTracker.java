package org.apache.spark;

import org.apache.spark.status.AppStatusStore;

/** Finds jobs by the names of groups and tags that the session gave them. */
final class SlotStatusTracker extends SparkStatusTracker {
  private final SlotContext context;

  SlotStatusTracker(SlotContext context, AppStatusStore store) {
    super(context, store);
    this.context = context;
  }

  public int[] getJobIdsForGroup(String group) {
    return super.getJobIdsForGroup(group == null ? null : context.inside(group));
  }

  public int[] getJobIdsForTag(String tag) {
    return super.getJobIdsForTag(context.inside(tag));
  }
}
