package org.apache.spark;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import java.util.zip.GZIPOutputStream;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.ui.SQLTab;
import org.apache.spark.ui.ServerInfo;
import org.apache.spark.ui.SparkUI;
import org.sparkproject.jetty.server.Handler;
import org.sparkproject.jetty.server.LocalConnector;
import org.sparkproject.jetty.server.Server;
import org.sparkproject.jetty.server.handler.ContextHandler;
import org.sparkproject.jetty.server.handler.ContextHandlerCollection;
import org.sparkproject.jetty.util.thread.QueuedThreadPool;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Spark's own pages (R58), made when somebody looks first, and dropped when nobody has looked for a while. They listen
 * nowhere: a request comes as a string, from the Spark host, and the answer is bytes.
 */
public final class SparkPages {
  private static final int THREADS_MAX = 6;
  private static final String NAME = "Spark"; // Spark's handlers take requests of a connector of this name only

  /** The heap's starts a program, and stops the JVM meanwhile; the TaskManager's page has stacks, for operators. */
  private static final Pattern NOT_SHOWN = Pattern.compile("(?i)heapHistogram|threadDump|/threads/?$|/kill/?$");

  /** Plain paths, which Jetty reads as they stand there. */
  private static final Pattern PATH = Pattern.compile("/|(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)+/?");

  private static SparkPages shown;

  private final Server server;
  private final LocalConnector connector;
  private long usedAt;

  private SparkPages(SparkContext original, SparkSession base, String secrets) throws Exception {
    SparkConf conf = original.getConf();
    String redacted = conf.get("spark.redaction.regex", null);
    conf.set("spark.redaction.regex", "(?i)" + secrets + (redacted == null ? "" : "|" + redacted));
    conf.set("spark.ui.killEnabled", "false");
    conf.set("spark.ui.heapHistogramEnabled", "false"); // the links; the pages would be there
    conf.set("spark.ui.threadDumpsEnabled", "false");
    conf.remove("spark.ui.filters");
    // The pages can end jobs by a GET where the context's own conf lets them: without the context they cannot.
    boolean mayKill = original.getConf().getBoolean("spark.ui.killEnabled", true);
    Option context = mayKill ? Option.empty() : Option.apply(original);
    SparkUI ui = SparkUI.create(
        context, original.statusStore(), conf, original.env().securityManager(),
        original.appName(), "", original.startTime(), original.version());
    ui.setAppId(original.applicationId());
    new SQLTab(base.sharedState().statusStore(), ui);
    QueuedThreadPool threads = new QueuedThreadPool(THREADS_MAX, 1);
    threads.setName("spark-pages");
    threads.setDaemon(true);
    server = new Server(threads);
    server.setStopTimeout(0);
    ContextHandlerCollection handlers = new ContextHandlerCollection(new ContextHandler[0]);
    server.setHandler((Handler) handlers);
    connector = new LocalConnector(server);
    connector.setName(NAME);
    server.addConnector(connector);
    server.start();
    ServerInfo info = new ServerInfo(server, 0, Option.empty(), conf, handlers);
    Object[] all = CollectionConverters.asJava(ui.getHandlers()).toArray();
    for (int i = 0; i < all.length; i++) {
      add(info, all[i], ui);
    }
  }

  /** By reflection: the class of a handler has another package in an older Jetty. */
  private static void add(ServerInfo info, Object handler, SparkUI ui) throws Exception {
    if (NOT_SHOWN.matcher((String) handler.getClass().getMethod("getContextPath").invoke(handler)).find()) {
      return;
    }
    java.lang.reflect.Method[] methods = ServerInfo.class.getMethods();
    for (int i = 0; i < methods.length; i++) {
      if (methods[i].getName().equals("addHandler")) {
        methods[i].invoke(info, new Object[] {handler, ui.securityManager()});
        return;
      }
    }
    throw new IllegalStateException("ServerInfo has no method addHandler");
  }

  /**
   * The answer to a GET: the length of its head as an int, the head as Jetty writes it, and its body packed by gzip.
   *
   * @param target path and query
   * @param prefix what the links of the page have in front
   * @param secrets what names and values of conf look like that are not shown
   * @param bytesMax of a body before and after it is packed
   */
  public static byte[] answer(
      SparkContext original,
      SparkSession base,
      String target,
      String prefix,
      String secrets,
      int bytesMax,
      int packedMax,
      int timeoutMillis)
      throws Exception {
    String path = target.indexOf('?') < 0 ? target : target.substring(0, target.indexOf('?'));
    if (!PATH.matcher(path).matches() || NOT_SHOWN.matcher(path).find()) {
      throw new IllegalArgumentException("this page is not shown");
    }
    SparkPages pages = get(original, base, secrets);
    String request = "GET " + target + " HTTP/1.0\r\nHost: spark\r\nX-Forwarded-Context: " + prefix + "\r\n\r\n";
    ByteBuffer input = ByteBuffer.wrap(request.getBytes(StandardCharsets.ISO_8859_1));
    ByteBuffer told = pages.connector.getResponse(input, false, timeoutMillis, TimeUnit.MILLISECONDS);
    if (told == null) {
      throw new IllegalStateException("the page was not made in " + timeoutMillis + " ms");
    }
    byte[] all = new byte[told.remaining()];
    told.get(all);
    int head = headLength(all);
    if (all.length - head > bytesMax) {
      throw new IllegalStateException("the page has " + (all.length - head) + " bytes, and may have " + bytesMax);
    }
    ByteArrayOutputStream packed = new ByteArrayOutputStream();
    packed.write(ByteBuffer.allocate(4).putInt(head).array());
    packed.write(all, 0, head);
    GZIPOutputStream out = new GZIPOutputStream(packed);
    out.write(all, head, all.length - head);
    out.close();
    if (packed.size() > packedMax) {
      throw new IllegalStateException("the page has " + packed.size() + " packed bytes, and may have " + packedMax);
    }
    return packed.toByteArray();
  }

  private static int headLength(byte[] answer) {
    for (int i = 3; i < answer.length; i++) {
      if (answer[i] == '\n' && answer[i - 1] == '\r' && answer[i - 2] == '\n' && answer[i - 3] == '\r') {
        return i + 1;
      }
    }
    throw new IllegalStateException("the answer has no head");
  }

  private static synchronized SparkPages get(SparkContext original, SparkSession base, String secrets) throws Exception {
    if (shown == null) {
      shown = new SparkPages(original, base, secrets);
    }
    shown.usedAt = System.nanoTime();
    return shown;
  }

  /** Drop them when nobody has looked for so long. */
  public static synchronized void forgetUnused(int idleMillis) throws Exception {
    if (shown != null && System.nanoTime() - shown.usedAt > idleMillis * 1000000L) {
      SparkPages before = shown;
      shown = null;
      before.server.stop();
    }
  }
}
