package org.apache.spark;

import java.io.File;
import java.io.FileNotFoundException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Enumeration;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ForkJoinWorkerThread;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.core.config.Configurator;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.python.Py4JServer;
import org.apache.spark.scheduler.TaskSchedulerImpl;
import org.apache.spark.scheduler.TaskSetManager;
import org.apache.spark.sql.artifact.ArtifactManager;
import org.apache.spark.sql.catalyst.catalog.GlobalTempViewManager;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.CacheManager;
import org.apache.spark.sql.internal.NonClosableMutableURLClassLoader;
import org.apache.spark.sql.internal.SessionState;
import org.apache.spark.sql.internal.SharedState;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.streaming.StreamingContext;
import org.apache.spark.streaming.StreamingContext$;
import py4j.Gateway;
import py4j.GatewayServer;
import py4j.ClientServerConnection;
import scala.Option;
import scala.Some;

/**
 * One session of a slot process in the shared JVM: a SparkContext, a cache and global temporary views of its own below a
 * SparkSession (R22), and a py4j gateway whose threads carry the session's tag. Opened, asked and closed with few py4j calls.
 */
public final class SlotSession {
  /** The local property that names the session in every thread and every task of it. */
  public static final String PROPERTY = "flinklike.session";

  private static final String WAREHOUSE = "spark.sql.warehouse.dir";
  private static final String HADOOP = "spark.hadoop.";
  private static final String LOG_LEVEL = "spark.log.level";
  private static final String APP_NAME = "spark.app.name";

  private static final Map OPEN = new ConcurrentHashMap();
  private static final AtomicLong NUMBERS = new AtomicLong();

  private final String tag;
  private final long number = NUMBERS.decrementAndGet(); // Hadoop counts upwards
  private final SparkContext original;
  private SlotContext context;
  private SharedState state;
  private SparkSession session;
  private Py4JServer server;
  private SlotGateway gateway;
  private List threads = Collections.EMPTY_LIST;
  private SlotHadoopConf hadoop;
  private String inside;
  private volatile SlotOutput output;
  private volatile Level logLevel; // null: the job has set none

  private SlotSession(String tag, SparkContext original) {
    this.tag = tag;
    this.original = original;
  }

  public SlotContext context() {
    return context;
  }

  /** Below zero, and never used again: marks what the session has in tables that others count upwards. */
  public long number() {
    return number;
  }

  /** The session to which the calling thread, or the task that it runs, belongs; null for none. */
  public static SlotSession current() {
    TaskContext task = TaskContext$.MODULE$.get();
    String tag = null;
    if (task != null) {
      tag = task.getLocalProperty(PROPERTY);
    } else {
      Option active = SparkContext$.MODULE$.getActive();
      tag = active.isEmpty() ? null : ((SparkContext) active.get()).getLocalProperty(PROPERTY);
    }
    return withTag(tag);
  }

  // --- opening -------------------------------------------------------------------------------------------------------

  /**
   * Open a session. `scriptWords`: with which scripts of its queries begin. `properties` are the local properties of all
   * that runs for it, besides its tag. They are inherited by threads, and the gateway's accept thread starts in the
   * constructor of Py4JServer: so that is made on a thread which has them, and whose end takes them along.
   */
  public static SlotSession open(
      final SparkContext original,
      final SparkSession base,
      final String tag,
      final String scriptWords,
      final Map properties)
      throws Exception {
    final SlotSession made = new SlotSession(tag, original);
    final Throwable[] failure = new Throwable[1];
    Thread thread = new Thread("open " + tag) {
      public void run() {
        try {
          made.open(base, scriptWords, properties);
        } catch (Throwable error) {
          failure[0] = error;
        }
      }
    };
    thread.setDaemon(true);
    thread.start();
    thread.join();
    if (failure[0] == null && OPEN.putIfAbsent(tag, made) != null) {
      failure[0] = new IllegalStateException("it is open already");
    }
    if (failure[0] != null) {
      made.abandon(failure[0]);
      throw new IllegalStateException("opening the session " + tag, failure[0]);
    }
    return made;
  }

  private void open(SparkSession base, String scriptWords, Map wanted) throws Exception {
    context = SlotContext.of(original, tag, scriptWords);
    state = stateOf(base.sharedState());
    hadoop = new SlotHadoopConf(number, original.hadoopConfiguration(), context, state);
    session = new SparkSession(context, new Some(state), Option.empty(), base.extensions(), none(), none());
    Properties properties = new Properties();
    properties.putAll(wanted);
    properties.setProperty("spark.job.tags", tag);
    properties.setProperty("spark.job.interruptOnCancel", "true");
    properties.setProperty(PROPERTY, tag);
    properties.setProperty(SlotOutput.MARK, tag);
    inside = properties.getProperty(SlotEnv.DIRECTORY);
    original.setLocalProperties(properties);
    SparkSession.setActiveSession(session);
    SharedThreads.replace(original);
    SlotOutput.install();
    session.sessionState().catalog(); // built lazily otherwise, in the job's time
    server = new Py4JServer(original.conf());
    GatewayServer listener = javaServer();
    gateway = SlotGateway.of((Gateway) Fields.get(GatewayServer.class, listener, "gateway"));
    Fields.set(GatewayServer.class, listener, "gateway", gateway);
    gateway.putObject("slot", this);
    gateway.putObject("slot_jsc", new JavaSparkContext(context));
    gateway.putObject("slot_session", session);
    gateway.putObject("slot_scripts", ScriptQueries.of(tag, state, context));
  }

  /** What was made of a session that has failed to open goes with it. */
  private void abandon(Throwable failure) {
    List problems = new ArrayList();
    if (server != null) {
      new Step("gateway") {
        void take() {
          server.shutdown();
        }
      }.tryIt(problems);
    }
    String left = session == null ? "" : release();
    if (problems.size() > 0 || left.length() > 0) {
      failure.addSuppressed(new IllegalStateException(lines(problems) + left));
    }
  }

  /** Let the session's process find this under the given id, without a call. */
  void plant(String id, Object object) {
    gateway.putObject(id, object);
  }

  private static scala.collection.immutable.Map none() {
    return (scala.collection.immutable.Map) scala.collection.immutable.Map$.MODULE$.empty();
  }

  /** The shared state with conf, cache, catalog and global temporary views of its own; all share the status store. */
  private SharedState stateOf(SharedState shared) throws Exception {
    shared.externalCatalog();
    shared.globalTempViewManager(); // made, so that no other session's first use makes it
    SharedState made = (SharedState) Fields.copy(shared, SharedState.class);
    CacheManager cache = new CacheManager();
    Fields.set(SharedState.class, made, "sparkContext", context);
    Fields.set(SharedState.class, made, "conf", shared.conf().clone());
    Fields.set(SharedState.class, made, "hadoopConf", new Configuration(shared.hadoopConf()));
    Fields.set(SharedState.class, made, "cacheManager", cache);
    ClassLoader classes = shared.jarClassLoader().getParent();
    Fields.set(SharedState.class, made, "jarClassLoader", new NonClosableMutableURLClassLoader(classes));
    SlotRelationCache.install(made, cache);
    if (!SlotCatalogs.isShared(original.conf())) {
      Fields.set(
          SharedState.class,
          made,
          "externalCatalog",
          SlotCatalogs.forSession(made.conf(), made.hadoopConf(), original.listenerBus()));
    }
    String database = (String) Fields.get(SharedState.class, made, "globalTempDB");
    Fields.set(SharedState.class, made, "globalTempViewManager", new GlobalTempViewManager(database));
    return made;
  }

  /** Find classes in a jar, here; tasks find them by what the context serves. */
  void load(File jar) throws Exception {
    state.jarClassLoader().addURL(jar.toURI().toURL());
  }

  private GatewayServer javaServer() {
    return (GatewayServer) ((py4j.ClientServer) server.server()).getJavaServer();
  }

  /** Where the gateway listens, and its secret: "port secret". */
  public String address() {
    return server.getListeningPort() + " " + server.secret();
  }

  /**
   * Work for a job: with its catalog, and tables in `spark-warehouse` of its directory, where plain Spark puts them (R24).
   * Where the tables lie now. A session that works for the same job again begins in `default` again. "" when it may not
   * begin, because another job has changed this JVM (R45). `name` is that of its application.
   */
  public String begin(String job, String directory, String name) throws Exception {
    print(SlotOutput.open(inside));
    String wanted = context.conf().get(LOG_LEVEL, null);
    logLevel = wanted == null ? null : SlotLogs.level(wanted);
    if (!JvmState.begin(this, job)) {
      return "";
    }
    rename(name);
    if (!SlotCatalogs.isShared(original.conf())) {
      Path warehouse = new Path("file", null, directory + "/spark-warehouse");
      SlotCatalogs.enter(state.externalCatalog(), job, directory, warehouse, state.conf(), state.hadoopConf());
      session.sessionState().conf().setConfString(WAREHOUSE, warehouse.toString());
      context.conf().set(WAREHOUSE, warehouse.toString());
      state.conf().set(WAREHOUSE, warehouse.toString());
    }
    session.sessionState().catalog().setCurrentDatabase(session.sessionState().conf().defaultDatabase());
    return session.sessionState().conf().warehousePath();
  }

  /** From now on the application has this name, in this session and in those that it makes. */
  public void rename(String name) {
    session.sessionState().conf().setConfString(APP_NAME, name);
    context.conf().set(APP_NAME, name);
    state.conf().set(APP_NAME, name);
  }

  /** From now on into this output; null for that of the JVM. */
  private void print(SlotOutput next) {
    SlotOutput last = output;
    output = next;
    if (last != null) {
      last.close();
    }
  }

  /** Of the attempt for which this works; null for none. */
  SlotOutput output() {
    return output;
  }

  /**
   * Set a key that is not static: in the session, and wherever a fresh Spark would have it from the start, which are the
   * SparkConf, sessions that this one makes, and for `spark.hadoop.*` the Hadoop conf.
   */
  public void configure(String key, String value) {
    if (key.equals(LOG_LEVEL)) {
      setLogLevel(value);
      session.sessionState().conf().setConfString(key, value); // Spark takes it from no session
    } else {
      session.conf().set(key, value);
    }
    context.conf().set(key, value);
    state.conf().set(key, value);
    if (key.startsWith(HADOOP)) {
      hadoop.configure(key.substring(HADOOP.length()), value);
    }
  }

  /**
   * From which level on the log of this JVM is in the output of the attempt. A JVM that logs less logs as much from now on if it
   * is of one job; else the output says so.
   */
  void setLogLevel(String name) {
    logLevel = SlotLogs.level(name);
    Level ofJvm = SlotLogs.ofJvm();
    if (!logLevel.isMoreSpecificThan(ofJvm) && !JvmState.isShared()) {
      Configurator.setRootLevel(logLevel);
    } else if (!logLevel.isMoreSpecificThan(ofJvm)) {
      String told = "The log level " + logLevel + " shows no more than " + ofJvm + ": this Spark JVM logs that for all jobs.\n";
      SlotOutput.take(this, true, told.getBytes(), 0, told.length());
    }
  }

  Level logLevel() {
    return logLevel;
  }

  // --- credentials ---------------------------------------------------------------------------------------------------

  /** Keys of Hadoop's conf with credentials of services outside, for what is planned from here on (R51). */
  public void give(Map values) {
    hadoop.give(values);
  }

  /** Let file systems that were opened with earlier credentials be found no more; false while jobs may use them. */
  public boolean renewFileSystems() {
    return hadoop.renewFileSystems(this);
  }

  /** What Hadoop's conf holds for the session, and which file systems are opened with it. */
  public SlotHadoopConf hadoop() {
    return hadoop;
  }

  // --- while it is open ----------------------------------------------------------------------------------------------

  /** Count what the streaming queries do that this session of its context starts from now on. */
  public void followStreams(org.apache.spark.sql.classic.SparkSession one) {
    SlotStreams.follow(tag, one);
  }

  /** Of a query that has ended: batches, rows, and the number of its last batch, with blanks between. */
  public String endedStream(String runId, long millis) throws Exception {
    return SlotStreams.ended(tag, runId, millis);
  }

  /** The last batch that is committed in the directory of a query, by the names in its commit log; -1 for none. */
  public long committedBatch(String directory) throws Exception {
    Path commits = new Path(directory, "commits");
    FileStatus[] found;
    try {
      found = commits.getFileSystem(session.sessionState().newHadoopConf()).listStatus(commits);
    } catch (FileNotFoundException error) {
      return -1;
    }
    long last = -1;
    for (int i = 0; i < found.length; i++) {
      String name = found[i].getPath().getName();
      if (name.matches("[0-9]{1,18}")) {
        last = Math.max(last, Long.parseLong(name));
      }
    }
    return last;
  }

  /** The last committed batches of the running queries of a session, as a JSON list; "[]" when it is not open any more. */
  public static String positions(String tag) throws Exception {
    SlotSession open = withTag(tag);
    return open == null ? "[]" : SlotStreams.positions(tag, open.state, open.context);
  }

  /** How far the query of a session is, and is with ending between two batches if there is a hold (`HeldQueries`). */
  public static String look(String tag, String hold, boolean drains) throws Exception {
    SlotSession open = withTag(tag);
    return open == null ? "{\"phase\":\"none\",\"position\":null}" : HeldQueries.look(tag, open.state, open.context, hold, drains);
  }

  /** What follows when the query of the session has ended without a failure. */
  public String afterStream() {
    return HeldQueries.ended(tag);
  }

  /** The query that was held is started again. */
  public void releaseStream() {
    HeldQueries.forget(tag);
  }

  /** Cancel the Spark jobs that the session has now; how many there were. */
  public int cancelJobs(String reason) throws Exception {
    scala.concurrent.Future cancelled = original.cancelJobsWithTagWithFuture(tag, reason);
    Object jobs = scala.concurrent.Await$.MODULE$.result(
        cancelled, scala.concurrent.duration.Duration$.MODULE$.apply("10s"));
    return ((scala.collection.Seq) jobs).size();
  }

  /** True while the scheduler knows a running task of the session; those of a cancelled job may run on for a while. */
  public boolean hasActiveTasks() {
    TaskSchedulerImpl scheduler = (TaskSchedulerImpl) original.taskScheduler();
    for (Enumeration it = scheduler.taskIdToTaskSetManager().elements(); it.hasMoreElements(); ) {
      Properties properties = ((TaskSetManager) it.nextElement()).taskSet().properties();
      if (properties != null && tag.equals(properties.getProperty(PROPERTY))) {
        return true;
      }
    }
    return false;
  }

  /** True while the status store shows a running job of the session. */
  public boolean hasActiveJobs() {
    int[] active = original.statusTracker().getActiveJobIds();
    if (active.length == 0) {
      return false;
    }
    int[] own = original.statusTracker().getJobIdsForTag(tag);
    for (int i = 0; i < active.length; i++) {
      for (int j = 0; j < own.length; j++) {
        if (active[i] == own[j]) {
          return true;
        }
      }
    }
    return false;
  }

  /** Of an attempt that has ended: "" when nothing of it runs and the JVM is as it was, else "active" or "changed" (R45). */
  public String rest() throws Exception {
    if (hasActiveJobs()) {
      return "active";
    }
    return JvmState.rests(this) ? "" : "changed";
  }

  /** Stop the streams that any SparkSession of this context has started, and its DStreams; what did not stop in time. */
  public String stopStreams() {
    List problems = new ArrayList();
    Object[] queries = state.activeStreamingQueries().values().toArray();
    for (int i = 0; i < queries.length; i++) {
      StreamingQuery query = (StreamingQuery) queries[i];
      if (query.sparkSession().sparkContext() == context) {
        try {
          query.stop();
        } catch (Exception error) {
          problems.add("streaming query " + query.id() + ": " + error);
        }
      }
    }
    Option active = StreamingContext$.MODULE$.getActive();
    if (active.isDefined() && ((StreamingContext) active.get()).sparkContext() == context) {
      try {
        ((StreamingContext) active.get()).stop(false, false);
      } catch (Exception error) {
        problems.add("StreamingContext: " + error);
      }
    }
    return lines(problems);
  }

  /** One call for all: to go through a list, even an empty one, costs Python many calls. */
  private static String lines(List problems) {
    return String.join("\n", problems);
  }

  // --- closing -------------------------------------------------------------------------------------------------------

  /** Shut the gateway and stop the streams; what did not stop in time. All of it is tried, whatever fails. */
  public String shut() throws Exception {
    String unstopped = "";
    try {
      threads = connectionThreads();
    } finally {
      try {
        server.shutdown();
      } finally {
        unstopped = stopStreams();
      }
    }
    return unstopped;
  }

  /** The threads that serve the session's connections; py4j keeps them to itself. */
  private List connectionThreads() throws Exception {
    List found = new ArrayList();
    Object[] connections = ((List) Fields.get(GatewayServer.class, javaServer(), "connections")).toArray();
    for (int i = 0; i < connections.length; i++) {
      Thread thread = (Thread) Fields.get(ClientServerConnection.class, connections[i], "jvmThread");
      if (thread != null) {
        found.add(thread);
      }
    }
    return found;
  }

  /** How many calls of the session's process were in flight when the gateway was shut and have not ended. */
  public int callsInFlight() {
    int alive = 0;
    for (Iterator it = threads.iterator(); it.hasNext(); ) {
      alive += ((Thread) it.next()).isAlive() ? 1 : 0;
    }
    return alive;
  }

  /** Interrupt them. */
  public void interruptCalls() {
    for (Iterator it = threads.iterator(); it.hasNext(); ) {
      ((Thread) it.next()).interrupt();
    }
  }

  /** Forget all that the session has cached, persisted, broadcast or registered; what failed of it. Nothing of it runs. */
  public String release() {
    OPEN.remove(tag, this);
    SlotStreams.forget(tag);
    HeldQueries.forget(tag);
    print(null);
    List problems = new ArrayList();
    context.release(problems);
    new Step("cache") {
      void take() {
        state.cacheManager().clearCache();
      }
    }.tryIt(problems);
    new Step("ended queries") {
      void take() {
        EndedQueries.forget(original);
      }
    }.tryIt(problems);
    new Step("file systems") {
      void take() throws Exception {
        hadoop.closeFileSystems();
      }
    }.tryIt(problems);
    new Step("workers of its streams") {
      void take() throws Exception {
        WorkerPools.forgetSession(tag);
      }
    }.tryIt(problems);
    new Step("artifacts") {
      void take() throws Exception {
        Object artifacts = Fields.get(SessionState.class, session.sessionState(), "artifactManager");
        if (artifacts != null) {
          ((ArtifactManager) artifacts).close();
        }
      }
    }.tryIt(problems);
    return lines(problems);
  }

  /** After its release: what it may have changed in this JVM, and what became of that, as JvmState has it. */
  public String settle() throws Exception {
    return JvmState.settle(this);
  }

  /** Sessions are numbered downwards; so is what they mark. */
  static long nextNumber() {
    return NUMBERS.decrementAndGet();
  }

  static long lastNumber() {
    return NUMBERS.get();
  }

  /** True if one is open that was opened after the one of this number. */
  static boolean isAnyNewerThan(long number) {
    for (Iterator it = OPEN.values().iterator(); it.hasNext(); ) {
      if (((SlotSession) it.next()).number < number) {
        return true;
      }
    }
    return false;
  }

  /**
   * The open session for which another thread works, which stands still; null where that cannot be known. A task says
   * whose it is. Else the thread serves a connection of the session, or has inherited its local properties; those of a
   * fork-join pool prove nothing, because the first session makes its threads, and all use them.
   */
  static SlotSession of(Thread thread) throws Exception {
    ThreadLocal tasks = (ThreadLocal) Fields.get(TaskContext$.class, null, "taskContext");
    TaskContext task = (TaskContext) Fields.local(thread, "threadLocals", tasks);
    if (task != null) {
      return withTag(task.getLocalProperty(PROPERTY));
    }
    for (Iterator it = OPEN.values().iterator(); it.hasNext(); ) {
      SlotSession session = (SlotSession) it.next();
      if (session.connectionThreads().contains(thread)) {
        return session;
      }
    }
    Option active = SparkContext$.MODULE$.getActive();
    if (active.isEmpty() || thread instanceof ForkJoinWorkerThread) {
      return null;
    }
    ThreadLocal inherited = ((SparkContext) active.get()).localProperties();
    Properties properties = (Properties) Fields.local(thread, "inheritableThreadLocals", inherited);
    return properties == null ? null : withTag(properties.getProperty(PROPERTY));
  }

  static SlotSession withTag(String tag) {
    return tag == null ? null : (SlotSession) OPEN.get(tag);
  }

  String tag() {
    return tag;
  }

  /** How many are open. */
  public static int openCount() {
    return OPEN.size();
  }
}
