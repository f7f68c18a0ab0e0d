package org.apache.spark;

import java.lang.reflect.Method;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import py4j.Gateway;
import py4j.ReturnObject;

/**
 * A session's py4j gateway that ends no JVM (R23), changes none for other jobs, and starts no program in it, of which nobody
 * could tell whose it is (R29). It is a guard against accidents, no
 * boundary against intent.
 */
public final class SlotGateway extends Gateway {
  /** What is refused, "class.method", or "class" to make one, with what to do instead. */
  private static final Map REFUSED = new HashMap();

  static {
    String end = "End a script with sys.exit(), or by reaching its end";
    String zone = "For timestamps of SQL set spark.sql.session.timeZone";
    String locale = "Name the locale where it counts, as the option `locale` of the readers and writers does";
    String identity = "Put credentials into the job's own Hadoop conf, spark.hadoop.*";
    String program = "Start programs with subprocess of Python: then they end with their task";
    String all = "What a job has in Spark goes by itself when it ends";
    REFUSED.put("org.apache.spark.util.AccumulatorContext.clear", all);
    REFUSED.put("org.apache.spark.sql.internal.SQLConf.setSQLConfGetter", all);
    REFUSED.put("java.lang.ProcessBuilder", program);
    REFUSED.put("java.lang.ProcessBuilder.start", program);
    REFUSED.put("java.lang.ProcessBuilder.startPipeline", program);
    REFUSED.put("java.lang.Runtime.exec", program);
    REFUSED.put("java.lang.System.exit", end);
    REFUSED.put("java.lang.Runtime.exit", end);
    REFUSED.put("java.lang.Runtime.halt", end);
    REFUSED.put("java.lang.Shutdown.exit", end);
    REFUSED.put("java.lang.Shutdown.halt", end);
    REFUSED.put("java.util.TimeZone.setDefault", zone);
    REFUSED.put("org.joda.time.DateTimeZone.setDefault", zone);
    REFUSED.put("java.util.Locale.setDefault", locale);
    REFUSED.put("org.apache.hadoop.security.UserGroupInformation.setLoginUser", identity);
    REFUSED.put("org.apache.hadoop.security.UserGroupInformation.loginUserFromKeytab", identity);
    REFUSED.put("org.apache.hadoop.security.UserGroupInformation.loginUserFromSubject", identity);
  }

  private SlotGateway() {
    super(null); // never run: `of` copies
  }

  static SlotGateway of(Gateway gateway) throws Exception {
    return (SlotGateway) Fields.copy(gateway, SlotGateway.class);
  }

  public ReturnObject invoke(String made, List arguments) {
    refuse(made);
    return super.invoke(made, arguments);
  }

  public ReturnObject invoke(String method, String target, List arguments) {
    if (target.startsWith("z:")) {
      refuse(target.substring(2) + "." + method);
    } else if ("exit".equals(method) || "halt".equals(method) || "exec".equals(method)) {
      refuse(nameOf(getObjectFromId(target)) + "." + method);
    } else if ("invoke".equals(method) && getObjectFromId(target) instanceof Method) {
      Method called = (Method) getObjectFromId(target);
      refuse(called.getDeclaringClass().getName() + "." + called.getName());
    }
    return super.invoke(method, target, arguments);
  }

  private static String nameOf(Object object) {
    return object == null ? "" : object.getClass().getName();
  }

  private static void refuse(String what) {
    String instead = (String) REFUSED.get(what);
    if (instead != null) {
      throw new UnsupportedOperationException(
          what + " is refused: this JVM runs the Spark of other jobs too. " + instead);
    }
  }
}
