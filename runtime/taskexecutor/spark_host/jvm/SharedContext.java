package org.apache.spark;

import org.apache.hadoop.conf.Configuration;

/**
 * What the JVM finds as its active SparkContext and below its default session: the shared one, which only the owner of
 * the JVM stops, through the original (R23).
 */
public final class SharedContext extends SparkContext {
  private SharedContext() {
    super((SparkConf) null); // never run: `plant` copies
  }

  /** Put a face of `original` where `SparkContext.getOrCreate()` looks. */
  public static SharedContext plant(SparkContext original) throws Exception {
    SharedContext made = (SharedContext) Fields.copy(original, SharedContext.class);
    SparkContext$.MODULE$.org$apache$spark$SparkContext$$activeContext().set(made);
    SlotEnv.plant();
    return made;
  }

  /** Why no session can run jobs any more; null as long as they can. */
  public static String problemOf(SparkContext original) {
    if (original.isStopped()) {
      return "the SparkContext has stopped";
    }
    return original.dagScheduler().eventProcessLoop().isActive() ? null : "the thread that plans all jobs has ended";
  }

  public void stop() {}

  public void stop(int exitCode) {}

  public void stopInNewThread() {}

  /** Of the output of the session whose thread asks; nobody else changes what this JVM logs. */
  public void setLogLevel(String level) {
    SlotSession session = SlotSession.current();
    if (session != null) {
      session.setLogLevel(level);
    }
  }

  /** Of the session whose thread asks. */
  public Configuration hadoopConfiguration() {
    SlotSession session = SlotSession.current();
    return session == null ? super.hadoopConfiguration() : session.context().hadoopConfiguration();
  }

  /** Those of the session whose thread asks; none from elsewhere. */
  public void cancelAllJobs() {
    SlotSession session = SlotSession.current();
    if (session != null) {
      session.context().cancelAllJobs();
    }
  }
}
