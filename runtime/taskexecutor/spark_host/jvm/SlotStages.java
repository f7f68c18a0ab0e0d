package org.apache.spark;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Date;
import java.util.HashSet;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.ui.SQLAppStatusStore;
import org.apache.spark.sql.execution.ui.SQLExecutionUIData;
import org.apache.spark.status.AppStatusStore;
import org.apache.spark.status.api.v1.JobData;
import org.apache.spark.status.api.v1.StageData;
import scala.Option;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** What Spark has done for one attempt: jobs of a session's tag within a time, with their stages and queries, as JSON. */
public final class SlotStages {
  private static final int STAGES_MAX = 1000;
  private static final int QUERIES_MAX = 20;
  private static final int QUERIES_LOOKED_AT_MAX = 200;
  private static final int NAME_MAX = 200;
  private static final int PLAN_MAX = 16000;
  private static final long SETTLE_STEP_MILLIS = 5;
  private static final Pattern JOB_ID = Pattern.compile("[0-9a-f]{32}");
  /** Where a call of Python arrives in the JVM, which says nothing of the user's code. */
  private static final String REFLECTED = " at NativeMethodAccessorImpl.java";

  private SlotStages() {}

  /**
   * @param until the end of the attempt, 0 while it runs
   * @param settleMillis how long to wait for the store to learn that the last job has ended, which it does a little later
   */
  public static String read(
      SparkContext original, SparkSession base, String tag, long since, long until, int settleMillis, boolean hasPlans)
      throws InterruptedException {
    long deadline = System.currentTimeMillis() + settleMillis;
    List jobs = jobs(original, tag, since, until);
    while (isAnyRunning(jobs) && System.currentTimeMillis() < deadline) {
      Thread.sleep(SETTLE_STEP_MILLIS);
      jobs = jobs(original, tag, since, until);
    }
    StringBuilder text = new StringBuilder();
    text.append("{\"jobs\":").append(jobs.size());
    text.append(",\"jobs_failed\":").append(failed(jobs));
    text.append(",\"stages\":[");
    stages(original.statusStore(), jobs, text);
    text.append("],\"queries\":[");
    if (hasPlans && !jobs.isEmpty()) {
      queries(base.sharedState().statusStore(), jobs, text);
    }
    return text.append("]}").toString();
  }

  private static List jobs(SparkContext original, String tag, long since, long until) {
    List found = new ArrayList();
    Object[] all = CollectionConverters.asJava(original.statusStore().jobsList(null)).toArray();
    for (int i = 0; i < all.length; i++) {
      JobData job = (JobData) all[i];
      long submitted = millis(job.submissionTime());
      boolean isWithin = submitted >= since && (until == 0 || submitted <= until);
      if (isWithin && CollectionConverters.asJava((Seq) job.jobTags()).contains(tag)) {
        found.add(job);
      }
    }
    return found;
  }

  private static boolean isAnyRunning(List jobs) {
    for (int i = 0; i < jobs.size(); i++) {
      if (((JobData) jobs.get(i)).status() == JobExecutionStatus.RUNNING) {
        return true;
      }
    }
    return false;
  }

  private static int failed(List jobs) {
    int found = 0;
    for (int i = 0; i < jobs.size(); i++) {
      found += ((JobData) jobs.get(i)).status() == JobExecutionStatus.FAILED ? 1 : 0;
    }
    return found;
  }

  private static void stages(AppStatusStore store, List jobs, StringBuilder text) {
    Set seen = new HashSet();
    for (int i = 0; i < jobs.size(); i++) {
      Object[] ids = CollectionConverters.asJava((Seq) ((JobData) jobs.get(i)).stageIds()).toArray();
      for (int k = 0; k < ids.length && seen.size() < STAGES_MAX; k++) {
        if (seen.add(ids[k])) {
          stage(store, ((Integer) ids[k]).intValue(), text);
        }
      }
    }
  }

  private static void stage(AppStatusStore store, int id, StringBuilder text) {
    StageData stage;
    try {
      stage = store.lastStageAttempt(id);
    } catch (NoSuchElementException forgotten) {
      return;
    }
    if (text.charAt(text.length() - 1) == '}') {
      text.append(',');
    }
    text.append("{\"stage_id\":").append(id);
    number(text, "attempt", stage.attemptId());
    word(text, "name", stage.name(), NAME_MAX);
    word(text, "state", String.valueOf(stage.status()), NAME_MAX);
    number(text, "tasks_total", stage.numTasks());
    number(text, "tasks_active", stage.numActiveTasks());
    number(text, "tasks_completed", stage.numCompleteTasks());
    number(text, "tasks_failed", stage.numFailedTasks());
    number(text, "submitted_millis", millis(stage.submissionTime()));
    number(text, "completed_millis", millis(stage.completionTime()));
    number(text, "run_millis", stage.executorRunTime());
    number(text, "cpu_millis", stage.executorCpuTime() / 1000000);
    number(text, "gc_millis", stage.jvmGcTime());
    number(text, "read_bytes", stage.inputBytes());
    number(text, "read_records", stage.inputRecords());
    number(text, "write_bytes", stage.outputBytes());
    number(text, "write_records", stage.outputRecords());
    number(text, "shuffle_read_bytes", stage.shuffleReadBytes());
    number(text, "shuffle_write_bytes", stage.shuffleWriteBytes());
    number(text, "spilled_memory_bytes", stage.memoryBytesSpilled());
    number(text, "spilled_disk_bytes", stage.diskBytesSpilled());
    text.append('}');
  }

  private static void queries(SQLAppStatusStore store, List jobs, StringBuilder text) {
    Set ids = new HashSet();
    for (int i = 0; i < jobs.size(); i++) {
      ids.add(Integer.valueOf(((JobData) jobs.get(i)).jobId()));
    }
    int count = (int) Math.min(store.executionsCount(), Integer.MAX_VALUE);
    int first = Math.max(0, count - QUERIES_LOOKED_AT_MAX);
    List all = new ArrayList(CollectionConverters.asJava((Seq) store.executionsList(first, QUERIES_LOOKED_AT_MAX)));
    Collections.reverse(all);
    int found = 0;
    for (int i = 0; i < all.size() && found < QUERIES_MAX; i++) {
      SQLExecutionUIData query = (SQLExecutionUIData) all.get(i);
      if (!isAnyOf(CollectionConverters.asJava(query.jobs()).keySet().toArray(), ids)) {
        continue;
      }
      text.append(found++ > 0 ? "," : "").append("{\"query_id\":").append(query.executionId());
      number(text, "submitted_millis", query.submissionTime());
      number(text, "completed_millis", millis(query.completionTime()));
      word(text, "description", title(query, jobs), NAME_MAX);
      word(text, "plan", query.physicalPlanDescription(), PLAN_MAX);
      text.append('}');
    }
  }

  /** What users' code calls it; else where it was called, as its last job says: the description is the job's id then. */
  private static String title(SQLExecutionUIData query, List jobs) {
    String told = query.description();
    if (told != null && !told.isEmpty() && !JOB_ID.matcher(told).matches()) {
      return told;
    }
    Set ids = CollectionConverters.asJava(query.jobs()).keySet();
    JobData last = null;
    for (int i = 0; i < jobs.size(); i++) {
      JobData job = (JobData) jobs.get(i);
      if (ids.contains(Integer.valueOf(job.jobId())) && (last == null || job.jobId() > last.jobId())) {
        last = job;
      }
    }
    String name = last == null || last.name() == null ? "" : last.name();
    int reflected = name.indexOf(REFLECTED);
    if (reflected > 0) {
      return name.substring(0, reflected);
    }
    return name.isEmpty() || name.startsWith("$") ? called(query.details()) : name;
  }

  /** The method of Spark's API, from a call site as "org.apache.spark.sql.classic.Dataset.count(Dataset.scala:1)". */
  private static String called(String details) {
    String first = details == null ? "" : details;
    int end = first.indexOf('(');
    first = end > 0 ? first.substring(0, end) : "";
    return first.substring(first.lastIndexOf('.') + 1);
  }

  private static boolean isAnyOf(Object[] jobs, Set ids) {
    for (int i = 0; i < jobs.length; i++) {
      if (ids.contains(jobs[i])) {
        return true;
      }
    }
    return false;
  }

  private static long millis(Option date) {
    return date.isEmpty() ? -1 : ((Date) date.get()).getTime();
  }

  private static void number(StringBuilder text, String name, long value) {
    text.append(",\"").append(name).append("\":").append(value);
  }

  private static void word(StringBuilder text, String name, String value, int lengthMax) {
    text.append(",\"").append(name).append("\":\"");
    String shown = value == null ? "" : value;
    for (int i = 0; i < Math.min(shown.length(), lengthMax); i++) {
      char one = shown.charAt(i);
      if (one == '"' || one == '\\') {
        text.append('\\').append(one);
      } else if (one < ' ' || Character.isSurrogate(one)) {
        text.append(one == '\n' ? "\\n" : " ");
      } else {
        text.append(one);
      }
    }
    text.append('"');
  }
}
