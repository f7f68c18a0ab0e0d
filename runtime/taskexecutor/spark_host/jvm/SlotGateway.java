package org.apache.spark;

import java.lang.reflect.Method;
import java.net.InetAddress;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import javax.net.SocketFactory;
import py4j.CallbackClient;
import py4j.Gateway;
import py4j.GatewayServer;
import py4j.PythonClient;
import py4j.ReturnObject;

/**
 * A session's py4j gateway that ends no JVM (R23), changes none that other jobs share, and starts no program in it, of which
 * no component could tell whose it is (R29). It is a guard against accidents, no boundary against intent.
 */
public final class SlotGateway extends Gateway {
  /** What is refused, "class.method", or "class" to make one, with what to do instead. */
  private static final Map REFUSED = new HashMap();

  /** What is refused in a JVM that jobs share, and is a job's own in one that only it has. */
  private static final Map REFUSED_FOR_ALL = new HashMap();

  private static final String SPARK = "org.apache.spark.";

  /** What Spark has once for all sessions, below its package. What a session has of its own is elsewhere, as in `sql`. */
  private static final Pattern SHARED =
      Pattern.compile(
          "(broadcast|deploy|executor|internal|memory|metrics|network|resource|rpc|scheduler|shuffle|status|storage|ui)"
              + "\\..+|[^.]+");

  /** Faces of what is shared, whose ends are a session's own or none. */
  private static final Pattern FACE = Pattern.compile("SharedContext|Slot(?!Env).*");

  private static final Pattern END =
      Pattern.compile("(.*\\$|on|do)?(stop|shutdown|close|terminate|cancelAll|killAll|cleanUpAfter)([A-Z].*)?");

  private static final String ALL = "What a job has in Spark goes by itself when it ends";

  static {
    String end = "End a script with sys.exit(), or by reaching its end";
    String zone = "For timestamps of SQL set spark.sql.session.timeZone";
    String locale = "Name the locale where it counts, as the option `locale` of the readers and writers does";
    String identity = "Put credentials into the job's own Hadoop conf, spark.hadoop.*";
    String program = "Start programs with subprocess of Python: then they end with their task";
    REFUSED.put("org.apache.spark.util.AccumulatorContext.clear", ALL);
    REFUSED.put("org.apache.spark.sql.internal.SQLConf.setSQLConfGetter", ALL);
    REFUSED.put("org.apache.spark.sql.execution.streaming.state.StateStore.stop", ALL);
    REFUSED.put("java.lang.ProcessBuilder", program);
    REFUSED.put("java.lang.ProcessBuilder.start", program);
    REFUSED.put("java.lang.ProcessBuilder.startPipeline", program);
    REFUSED.put("java.lang.Runtime.exec", program);
    REFUSED.put("java.lang.System.exit", end);
    REFUSED.put("java.lang.Runtime.exit", end);
    REFUSED.put("java.lang.Runtime.halt", end);
    REFUSED.put("java.lang.Shutdown.exit", end);
    REFUSED.put("java.lang.Shutdown.halt", end);
    REFUSED_FOR_ALL.put("java.util.TimeZone.setDefault", zone);
    REFUSED_FOR_ALL.put("org.joda.time.DateTimeZone.setDefault", zone);
    REFUSED_FOR_ALL.put("java.util.Locale.setDefault", locale);
    REFUSED_FOR_ALL.put("org.apache.hadoop.security.UserGroupInformation.setLoginUser", identity);
    REFUSED_FOR_ALL.put("org.apache.hadoop.security.UserGroupInformation.loginUserFromKeytab", identity);
    REFUSED_FOR_ALL.put("org.apache.hadoop.security.UserGroupInformation.loginUserFromSubject", identity);
  }

  private SlotGateway() {
    super(null); // never run: `of` copies
  }

  static SlotGateway of(Gateway gateway) throws Exception {
    return (SlotGateway) Fields.copy(gateway, SlotGateway.class);
  }

  /** As py4j's, but with the secret, which its copy of a client forgets: the session's process asks for it (R44). */
  public void resetCallbackClient(InetAddress address, int port) {
    try {
      PythonClient last = (PythonClient) getCallbackClient();
      String secret = (String) Fields.get(CallbackClient.class, last, "authToken");
      last.shutdown();
      Fields.set(
          Gateway.class,
          this,
          "cbClient",
          new PythonClient(
              this,
              null,
              port,
              address,
              CallbackClient.DEFAULT_MIN_CONNECTION_TIME,
              TimeUnit.SECONDS,
              SocketFactory.getDefault(),
              last.getJavaServer(),
              true,
              GatewayServer.DEFAULT_READ_TIMEOUT,
              secret));
    } catch (Exception error) {
      throw new IllegalStateException("callbacks of this session", error);
    }
  }

  public ReturnObject invoke(String made, List arguments) {
    refuse(made);
    return super.invoke(made, arguments);
  }

  public ReturnObject invoke(String method, String target, List arguments) {
    if (target.startsWith("z:")) {
      refuse(target.substring(2) + "." + method);
      refuseEnd(target.substring(2), method);
    } else if (END.matcher(method).matches()) {
      refuseEnd(nameOf(getObjectFromId(target)), method);
    } else if ("exit".equals(method) || "halt".equals(method) || "exec".equals(method)) {
      refuse(nameOf(getObjectFromId(target)) + "." + method);
    } else if ("invoke".equals(method) && getObjectFromId(target) instanceof Method) {
      Method called = (Method) getObjectFromId(target);
      refuse(called.getDeclaringClass().getName() + "." + called.getName());
      refuseEnd(nameOf(arguments.isEmpty() ? null : arguments.get(0)), called.getName());
    }
    return super.invoke(method, target, arguments);
  }

  private static String nameOf(Object object) {
    return object == null ? "" : object.getClass().getName();
  }

  private static void refuse(String what) {
    String instead = (String) REFUSED.get(what);
    if (instead != null) {
      refuse(what, instead);
    }
    String own = (String) REFUSED_FOR_ALL.get(what);
    if (own != null && JvmState.isShared()) {
      refuse(what, own + ", or give the job a JVM of its own (spark.flinklike.isolation: jvm)");
    }
  }

  /** What ends, or empties, a part of Spark that all use. */
  private static void refuseEnd(String name, String method) {
    if (name.startsWith(SPARK) && END.matcher(method).matches()) {
      String below = name.substring(SPARK.length());
      if (SHARED.matcher(below).matches() && !FACE.matcher(below).matches()) {
        refuse(name + "." + method, ALL);
      }
    }
  }

  private static void refuse(String what, String instead) {
    String who = JvmState.isShared() ? "runs the Spark of other jobs too" : "serves all tasks of the job";
    throw new UnsupportedOperationException(what + " is refused: this JVM " + who + ". " + instead);
  }
}
