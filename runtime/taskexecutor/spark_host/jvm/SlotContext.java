package org.apache.spark;

import java.io.File;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.api.python.PythonAccumulatorV2;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.partial.ApproximateEvaluator;
import org.apache.spark.partial.PartialResult;
import org.apache.spark.rdd.RDD;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.util.AccumulatorV2;
import org.sparkproject.guava.collect.MapMaker;
import scala.Function0;
import scala.Function1;
import scala.Function2;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag;

/**
 * The SparkContext of one session: a copy of the shared one that has a Hadoop configuration, persisted RDDs, a checkpoint
 * directory, listeners, and names of job groups and tags of its own (R22). Scheduler, storage and local properties are
 * shared. It cannot be stopped (R23).
 */
public final class SlotContext extends SparkContext {
  private static final String TAGS = "spark.job.tags";
  private static final String GROUP = "spark.jobGroup.id";

  private static volatile String uiAddress = "";

  private SparkContext shared;
  private String tag;
  private String scriptWords;
  private SlotListenerBus listeners;
  private Set broadcasts;
  private SlotAccumulators accumulators;
  private Configuration ownHadoopConfiguration;

  private SlotContext() {
    super((SparkConf) null); // never run: `of` copies
  }

  static SlotContext of(SparkContext shared, String tag, String scriptWords) throws Exception {
    SlotContext made = (SlotContext) Fields.copy(shared, SlotContext.class);
    made.shared = shared;
    made.tag = tag;
    made.scriptWords = scriptWords;
    made.accumulators = new SlotAccumulators(tag);
    String slot = tag.substring(0, tag.lastIndexOf('-'));
    made.listeners = SlotListenerBus.of(shared.listenerBus(), slot, made.accumulators);
    made.broadcasts = Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap()));
    ConcurrentMap persisted = new MapMaker().weakValues().makeMap();
    Fields.set(SparkContext.class, made, "persistentRdds", CollectionConverters.asScala(persisted));
    Fields.set(SparkContext.class, made, "checkpointDir", Option.empty());
    Fields.set(SparkContext.class, made, "_listenerBus", made.listeners);
    Fields.set(SparkContext.class, made, "_conf", shared.getConf());
    Fields.set(SparkContext.class, made, "_statusTracker", new SlotStatusTracker(made, shared.statusStore()));
    return made;
  }

  /** The words that each script of a query begins with, so that its session is known; empty without a look for it. */
  String scriptWords() {
    return scriptWords;
  }

  public void stop() {}

  public void stop(int exitCode) {}

  public void stopInNewThread() {}

  /** Where people see Spark's pages; empty where nobody can. */
  public static void setUiAddress(String address) {
    uiAddress = address;
  }

  public Option uiWebUrl() {
    return uiAddress.isEmpty() ? super.uiWebUrl() : Option.apply(uiAddress);
  }

  public void setLogLevel(String level) {
    SlotSession session = SlotSession.withTag(tag);
    if (session != null) {
      session.setLogLevel(level);
    }
  }

  /** Made at the first use: most jobs never look at it. */
  public synchronized Configuration hadoopConfiguration() {
    if (ownHadoopConfiguration == null) {
      ownHadoopConfiguration = new Configuration(shared.hadoopConfiguration());
    }
    return ownHadoopConfiguration;
  }

  public Broadcast broadcastInternal(Object value, boolean serializedOnly, ClassTag classTag) {
    Broadcast made = super.broadcastInternal(value, serializedOnly, classTag);
    broadcasts.add(made);
    return made;
  }

  /** Those of Python are replaced by the session's own kind; what tasks take along names it by the same number. */
  public void register(AccumulatorV2 accumulator) {
    if (!(accumulator instanceof PythonAccumulatorV2) || accumulator.metadata() != null) {
      super.register(accumulator);
      return;
    }
    SlotAccumulator own = accumulators.replace((PythonAccumulatorV2) accumulator);
    super.register(own);
    accumulator.metadata_$eq(own.metadata());
    // A planner merges into the one that functions name, which must not be the given one: that would take the only
    // connection which Python's server serves.
    SlotSession session = SlotSession.current();
    if (session != null) {
      session.plant("slot_accumulator", own);
    }
  }

  // --- jobs: all others end in these, but for the stages of queries ----------------------------------------------------

  public void runJob(
      RDD rdd, Function2 function, scala.collection.immutable.Seq partitions, Function2 handler, ClassTag type) {
    try {
      super.runJob(rdd, function, partitions, handler, type);
    } finally {
      accumulators.await();
    }
  }

  public PartialResult runApproximateJob(RDD rdd, Function2 function, ApproximateEvaluator evaluator, long timeout) {
    try {
      return super.runApproximateJob(rdd, function, evaluator, timeout);
    } finally {
      accumulators.await();
    }
  }

  public SimpleFutureAction submitJob(
      RDD rdd, Function1 function, scala.collection.immutable.Seq partitions, Function2 handler, Function0 result) {
    return SlotFutureAction.of(super.submitJob(rdd, function, partitions, handler, result), accumulators);
  }

  // --- names of groups and tags: what one session cancels by name is its own ----------------------------------------

  /** The name by which the scheduler knows a group or tag of this session. The session's own tag has no other. */
  String inside(String name) {
    return name.equals(tag) ? name : tag + "/" + name;
  }

  private String outside(String name) {
    return name.startsWith(tag + "/") ? name.substring(tag.length() + 1) : name;
  }

  /** Not the one that says whose threads and tasks these are: no session works in the name of another (R23). */
  public void setLocalProperty(String key, String value) {
    if (SlotSession.PROPERTY.equals(key) || SlotOutput.MARK.equals(key)) {
      return;
    }
    if (TAGS.equals(key)) {
      Set tags = new LinkedHashSet();
      for (Iterator it = split(value).iterator(); it.hasNext(); ) {
        tags.add(inside(outside((String) it.next())));
      }
      setRawTags(tags);
      return;
    }
    boolean isName = GROUP.equals(key) && value != null;
    super.setLocalProperty(key, isName ? inside(outside(value)) : value);
  }

  public String getLocalProperty(String key) {
    if (TAGS.equals(key)) {
      List tags = ownTags();
      return tags.isEmpty() ? null : String.join(",", tags);
    }
    String value = super.getLocalProperty(key);
    return GROUP.equals(key) && value != null ? outside(value) : value;
  }

  public void cancelJobGroup(String group) {
    super.cancelJobGroup(inside(group));
  }

  public void cancelJobGroup(String group, String reason) {
    super.cancelJobGroup(inside(group), reason);
  }

  public void cancelJobGroupAndFutureJobs(String group) {
    super.cancelJobGroupAndFutureJobs(inside(group));
  }

  public void cancelJobGroupAndFutureJobs(String group, String reason) {
    super.cancelJobGroupAndFutureJobs(inside(group), reason);
  }

  private Set rawTags() {
    return split(super.getLocalProperty(TAGS));
  }

  private static Set split(String value) {
    Set found = new LinkedHashSet();
    String[] names = value == null ? new String[0] : value.split(",");
    for (int i = 0; i < names.length; i++) {
      if (names[i].length() > 0) {
        found.add(names[i]);
      }
    }
    return found;
  }

  private void setRawTags(Set tags) {
    tags.add(tag);
    super.setLocalProperty(TAGS, String.join(",", tags));
  }

  public void addJobTags(scala.collection.immutable.Set names) {
    Set tags = rawTags();
    for (Iterator it = CollectionConverters.asJava(names).iterator(); it.hasNext(); ) {
      String name = (String) it.next();
      SparkContext$.MODULE$.throwIfInvalidTag(name);
      tags.add(inside(name));
    }
    setRawTags(tags);
  }

  public void addJobTag(String name) {
    SparkContext$.MODULE$.throwIfInvalidTag(name);
    Set tags = rawTags();
    tags.add(inside(name));
    setRawTags(tags);
  }

  public void removeJobTags(scala.collection.immutable.Set names) {
    Set tags = rawTags();
    for (Iterator it = CollectionConverters.asJava(names).iterator(); it.hasNext(); ) {
      tags.remove(inside((String) it.next()));
    }
    setRawTags(tags);
  }

  public void removeJobTag(String name) {
    SparkContext$.MODULE$.throwIfInvalidTag(name);
    Set tags = rawTags();
    tags.remove(inside(name));
    setRawTags(tags);
  }

  public void clearJobTags() {
    setRawTags(new LinkedHashSet());
  }

  /** Without the session's own tag, which the job has not set and cannot remove. */
  private List ownTags() {
    List found = new ArrayList();
    for (Iterator it = rawTags().iterator(); it.hasNext(); ) {
      String name = (String) it.next();
      if (!name.equals(tag)) {
        found.add(outside(name));
      }
    }
    return found;
  }

  public scala.collection.immutable.Set getJobTags() {
    return CollectionConverters.asScala(ownTags()).toSet();
  }

  public scala.concurrent.Future cancelJobsWithTagWithFuture(String name, String reason) {
    return super.cancelJobsWithTagWithFuture(inside(name), reason);
  }

  public void cancelJobsWithTag(String name, String reason) {
    super.cancelJobsWithTag(inside(name), reason);
  }

  public void cancelJobsWithTag(String name) {
    super.cancelJobsWithTag(inside(name));
  }

  public void cancelAllJobs() {
    super.cancelJobsWithTag(tag);
  }

  // --- files: every task of every job would fetch them, and fail where they are deleted (R22) ---------------------------

  public void addFile(String path) {
    refuseForAll("ADD FILE", "spark.sparkContext.addFile", path);
    super.addFile(path);
  }

  public void addFile(String path, boolean isRecursive) {
    refuseForAll("ADD FILE", "spark.sparkContext.addFile", path);
    super.addFile(path, isRecursive);
  }

  public void addArchive(String path) {
    refuseForAll("ADD ARCHIVE", "spark.sparkContext.addArchive", path);
    super.addArchive(path);
  }

  /** One of another storage is fetched from there, and has to stay. */
  public void addJar(String path) {
    if (JobArtifactSet$.MODULE$.getCurrentJobArtifactState().isDefined()) {
      super.addJar(path);
      return;
    }
    try {
      File jar = SlotJars.meant(path, getLocalProperty(SlotEnv.DIRECTORY));
      super.addJar(jar == null ? path : SlotJars.keep(jar).getPath());
      SlotSession session = SlotSession.withTag(tag);
      if (jar != null && session != null) {
        session.load(jar); // where a relative path is meant, Spark looks elsewhere
      }
    } catch (Exception error) {
      Platform.throwException(error);
    }
  }

  /** What `spark.addArtifacts` adds is the session's, and goes with it. */
  private static void refuseForAll(String what, String instead, String path) {
    if (JobArtifactSet$.MODULE$.getCurrentJobArtifactState().isEmpty()) {
      throw new UnsupportedOperationException(what + " " + path + " is refused: the tasks of all jobs would fetch it. Add it by "
          + instead + "(...) in Python, or with the job's files, which both are the job's own");
    }
  }

  // --- the end -------------------------------------------------------------------------------------------------------

  /** Drop what the session has left: listeners, connections, persisted and checkpointed blocks, broadcasts. Idempotent. */
  void release(List problems) {
    new Step("listeners") {
      void take() {
        listeners.removeAdded();
      }
    }.tryIt(problems);
    accumulators.close(problems);
    unpersist(problems);
    Object[] made = broadcasts.toArray();
    broadcasts.clear();
    for (int i = 0; i < made.length; i++) {
      final Broadcast broadcast = (Broadcast) made[i];
      new Step("broadcast") {
        void take() {
          if (broadcast != null && broadcast.isValid()) {
            broadcast.destroy(false);
          }
        }
      }.tryIt(problems);
    }
  }

  private void unpersist(List problems) {
    List ids = new ArrayList(CollectionConverters.asJava(getPersistentRDDs()).keySet());
    for (int i = 0; i < ids.size(); i++) {
      final int id = ((Integer) ids.get(i)).intValue();
      new Step("RDD " + id) {
        void take() {
          unpersistRDD(id, false);
        }
      }.tryIt(problems);
    }
  }
}
