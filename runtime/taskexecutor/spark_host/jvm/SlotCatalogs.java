package org.apache.spark;

import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.scheduler.LiveListenerBus;
import org.apache.spark.sql.catalyst.catalog.CatalogDatabase;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalog;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalogEvent;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalogEventListener;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalogWithListener;
import org.apache.spark.sql.catalyst.catalog.InMemoryCatalog;

/**
 * The catalogs of jobs (R22): databases, tables and functions of one job are found by its sessions only, from its first
 * use of Spark until it leaves this TaskManager. A session has a catalog before it has a job, so what it has changes its
 * content then.
 */
public final class SlotCatalogs {
  private static final String DATABASE = "default";
  private static final Map OF_JOBS = new HashMap();

  private ExternalCatalog made;

  private SlotCatalogs() {}

  /** True if all jobs share one catalog, which outlives them (`taskmanager.spark.warehouse`). */
  static boolean isShared(SparkConf conf) {
    return "hive".equals(conf.get("spark.sql.catalogImplementation", "in-memory"));
  }

  /** What a session has: it tells the bus of what it does, as Spark's own. */
  static ExternalCatalogWithListener forSession(SparkConf conf, Configuration hadoop, final LiveListenerBus bus) {
    ExternalCatalogWithListener made = new ExternalCatalogWithListener(new InMemoryCatalog(conf, hadoop));
    made.addListener(new ExternalCatalogEventListener() {
      public void onEvent(ExternalCatalogEvent event) {
        bus.post(event);
      }
    });
    return made;
  }

  /** Let a session find the catalog of its job from now on. */
  static void enter(ExternalCatalogWithListener session, String job, String directory, Path warehouse, SparkConf conf,
      Configuration hadoop) throws Exception {
    SlotCatalogs found;
    synchronized (OF_JOBS) {
      found = (SlotCatalogs) OF_JOBS.get(job);
      if (found == null) {
        found = new SlotCatalogs();
        OF_JOBS.put(job, found);
      }
    }
    Fields.set(ExternalCatalogWithListener.class, session, "delegate", found.catalog(directory, warehouse, conf, hadoop));
  }

  /** Made at the first call; others of the job wait for it, and no other job does. */
  private synchronized ExternalCatalog catalog(
      String directory, Path warehouse, SparkConf conf, Configuration hadoop) throws Exception {
    if (made == null) {
      new JobWarehouse(directory).prepare();
      ExternalCatalog empty = new InMemoryCatalog(conf, hadoop);
      scala.collection.immutable.Map none =
          (scala.collection.immutable.Map) scala.collection.immutable.Map$.MODULE$.empty();
      empty.createDatabase(
          new CatalogDatabase(DATABASE, "default database", warehouse.toUri(), none), true);
      made = empty;
    }
    return made;
  }

  /** The job has left. */
  public static void forget(String job) {
    synchronized (OF_JOBS) {
      OF_JOBS.remove(job);
    }
  }

  /** How many jobs have one. */
  static int count() {
    synchronized (OF_JOBS) {
      return OF_JOBS.size();
    }
  }
}
