package org.apache.spark;

import java.lang.reflect.Field;
import java.net.Authenticator;
import java.net.CookieHandler;
import java.net.HttpURLConnection;
import java.net.ProxySelector;
import java.net.ResponseCache;
import java.net.URL;
import java.security.Provider;
import java.security.Security;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TimeZone;
import javax.net.ssl.HttpsURLConnection;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.spark.deploy.SparkHadoopUtil;
import org.apache.spark.sql.classic.SparkSession;
import scala.Option;

/** The parts of this JVM that a job can change for those that come after it (R45). */
final class JvmParts {
  /** What classes of Hadoop add when they are loaded. */
  private static final Set OWN_RESOURCES =
      new HashSet(
          Arrays.asList(
              new Object[] {
                "core-default.xml", "core-site.xml", "hdfs-default.xml", "hdfs-site.xml",
                "hdfs-rbf-default.xml", "hdfs-rbf-site.xml",
                "mapred-default.xml", "mapred-site.xml", "yarn-default.xml", "yarn-site.xml", "resource-types.xml"
              }));

  private static final String[] SECURITY = {
    "networkaddress.cache.ttl", "networkaddress.cache.negative.ttl", "securerandom.source", "keystore.type",
    "ssl.KeyManagerFactory.algorithm", "ssl.TrustManagerFactory.algorithm", "jdk.tls.disabledAlgorithms",
    "jdk.tls.legacyAlgorithms", "jdk.certpath.disabledAlgorithms", "jdk.jar.disabledAlgorithms",
    "jdk.security.legacyAlgorithms", "jdk.security.caDistrustPolicies", "crypto.policy", "policy.allowSystemProperty"
  };

  private JvmParts() {}

  static List all(SparkContext original, SparkSession base) throws Exception {
    List parts = new ArrayList();
    parts.add(timeZone());
    parts.add(locale());
    parts.add(properties());
    parts.add(conf("Spark conf", original.conf()));
    parts.add(conf("Spark SQL's conf", base.sharedState().conf()));
    hadoop("Hadoop conf", original.hadoopConfiguration(), parts);
    hadoop("Hadoop conf of Spark SQL", base.sharedState().hadoopConf(), parts);
    hadoop("Hadoop conf of Spark's own", SparkHadoopUtil.get().conf(), parts);
    parts.add(resources());
    parts.add(new JvmLogLevels());
    parts.add(new JvmJavaLogLevels());
    parts.add(defaults());
    parts.add(security());
    parts.add(spark());
    parts.add(users());
    return parts;
  }

  private static JvmPart timeZone() {
    return new JvmPart("time zone") {
      Map read() {
        return Collections.singletonMap("", TimeZone.getDefault());
      }

      void write(String key, Object value) {
        TimeZone.setDefault((TimeZone) value);
      }

      String shown(Object value) {
        return ((TimeZone) value).getID();
      }
    };
  }

  private static JvmPart locale() {
    return new JvmPart("locale") {
      Map read() {
        Object[] found = {
          Locale.getDefault(), Locale.getDefault(Locale.Category.DISPLAY), Locale.getDefault(Locale.Category.FORMAT)
        };
        return Collections.singletonMap("", Arrays.asList(found));
      }

      void write(String key, Object value) {
        List wanted = (List) value;
        Locale.setDefault((Locale) wanted.get(0));
        Locale.setDefault(Locale.Category.DISPLAY, (Locale) wanted.get(1));
        Locale.setDefault(Locale.Category.FORMAT, (Locale) wanted.get(2));
      }
    };
  }

  private static JvmPart properties() {
    return new JvmPart("system property") {
      Map read() {
        return System.getProperties();
      }

      void write(String key, Object value) {
        if (value == null) {
          System.getProperties().remove(key);
        } else {
          System.getProperties().put(key, value);
        }
      }
    };
  }

  private static JvmPart conf(String name, final SparkConf conf) throws Exception {
    final Map settings = (Map) Fields.get(SparkConf.class, conf, "settings");
    return new JvmPart(name) {
      Map read() {
        return settings;
      }

      void write(String key, Object value) {
        if (value == null) {
          settings.remove(key);
        } else {
          settings.put(key, value);
        }
      }

      boolean isCopied() {
        return true;
      }
    };
  }

  /** What was set in it, and how many files were added. */
  private static void hadoop(String name, final Configuration conf, List parts) throws Exception {
    final Field overlay = Fields.find(Configuration.class, "overlay");
    final Field resources = Fields.find(Configuration.class, "resources");
    parts.add(new JvmPart(name) {
      Map read() throws Exception {
        Map set = (Map) overlay.get(conf);
        return set == null ? Collections.EMPTY_MAP : set;
      }

      void write(String key, Object value) {
        if (value == null) {
          conf.unset(key);
          conf.reloadConfiguration(); // what files say of it is there again
        } else {
          conf.set(key, (String) value);
        }
      }

      boolean isCopied() {
        return true;
      }
    });
    parts.add(new JvmPart(name + ", files of it") {
      Map read() throws Exception {
        return Collections.singletonMap("", Integer.valueOf(((List) resources.get(conf)).size()));
      }
    });
  }

  private static JvmPart resources() throws Exception {
    final List files = (List) Fields.get(Configuration.class, null, "defaultResources");
    final Map all = (Map) Fields.get(Configuration.class, null, "REGISTRY");
    return new JvmPart("Hadoop default resource") {
      Map read() {
        Map found = new HashMap();
        Object[] names = files.toArray();
        for (int i = 0; i < names.length; i++) {
          found.put(names[i], "added");
        }
        return found;
      }

      void write(String key, Object value) {
        if (value != null) {
          Configuration.addDefaultResource(key);
          return;
        }
        synchronized (Configuration.class) {
          files.remove(key);
          Object[] loaded = all.keySet().toArray();
          for (int i = 0; i < loaded.length; i++) {
            ((Configuration) loaded[i]).reloadConfiguration();
          }
        }
      }

      boolean isOwn(String key) {
        return OWN_RESOURCES.contains(key);
      }
    };
  }

  /** What Java has one of. That of `URL` can be set once only, and is remembered in a table of its own. */
  private static JvmPart defaults() throws Exception {
    final Field urls = Fields.find(URL.class, "factory");
    return new JvmPart("default of Java") {
      Map read() throws Exception {
        Map found = new HashMap();
        found.put("URLStreamHandlerFactory", urls.get(null));
        found.put("UncaughtExceptionHandler", Thread.getDefaultUncaughtExceptionHandler());
        found.put("System.in", System.in);
        found.put("System.out", System.out);
        found.put("System.err", System.err);
        found.put("SecurityManager", System.getSecurityManager());
        found.put("Authenticator", Authenticator.getDefault());
        found.put("ProxySelector", ProxySelector.getDefault());
        found.put("CookieHandler", CookieHandler.getDefault());
        found.put("ResponseCache", ResponseCache.getDefault());
        found.put("HostnameVerifier", HttpsURLConnection.getDefaultHostnameVerifier());
        found.put("followRedirects", Boolean.valueOf(HttpURLConnection.getFollowRedirects()));
        return found;
      }

      void write(String key, Object value) throws Exception {
        if ("UncaughtExceptionHandler".equals(key)) {
          Thread.setDefaultUncaughtExceptionHandler((Thread.UncaughtExceptionHandler) value);
        } else if ("System.in".equals(key)) {
          System.setIn((java.io.InputStream) value);
        } else if ("System.out".equals(key)) {
          System.setOut((java.io.PrintStream) value);
        } else if ("System.err".equals(key)) {
          System.setErr((java.io.PrintStream) value);
        } else if ("Authenticator".equals(key)) {
          Authenticator.setDefault((Authenticator) value);
        } else if ("ProxySelector".equals(key)) {
          ProxySelector.setDefault((ProxySelector) value);
        } else if ("CookieHandler".equals(key)) {
          CookieHandler.setDefault((CookieHandler) value);
        } else if ("ResponseCache".equals(key)) {
          ResponseCache.setDefault((ResponseCache) value);
        } else if ("HostnameVerifier".equals(key)) {
          HttpsURLConnection.setDefaultHostnameVerifier((javax.net.ssl.HostnameVerifier) value);
        } else if ("followRedirects".equals(key)) {
          HttpURLConnection.setFollowRedirects(((Boolean) value).booleanValue());
        } else {
          super.write(key, value);
        }
      }

      String shown(Object value) {
        return value instanceof Boolean ? value.toString() : value.getClass().getName();
      }
    };
  }

  private static JvmPart security() {
    return new JvmPart("security of Java") {
      Map read() {
        Map found = new HashMap();
        Provider[] providers = Security.getProviders();
        StringBuilder names = new StringBuilder();
        for (int i = 0; i < providers.length; i++) {
          names.append(i == 0 ? "" : ", ").append(providers[i].getName());
        }
        found.put("providers", names.toString());
        for (int i = 0; i < SECURITY.length; i++) {
          found.put(SECURITY[i], Security.getProperty(SECURITY[i]));
        }
        return found;
      }

      void write(String key, Object value) throws Exception {
        if ("providers".equals(key) || value == null) {
          super.write(key, value);
        }
        Security.setProperty(key, (String) value);
      }
    };
  }

  private static JvmPart spark() {
    return new JvmPart("Spark's own") {
      Map read() {
        Map found = new HashMap();
        Option session = SparkSession.getDefaultSession();
        found.put("default session", session.isEmpty() ? null : session.get());
        found.put("active context", SparkContext$.MODULE$.org$apache$spark$SparkContext$$activeContext().get());
        found.put("environment", SparkEnv.get());
        return found;
      }

      void write(String key, Object value) {
        if ("environment".equals(key)) {
          SparkEnv$.MODULE$.set((SparkEnv) value);
        } else if ("active context".equals(key)) {
          SparkContext$.MODULE$.org$apache$spark$SparkContext$$activeContext().set((SparkContext) value);
        } else if (value == null) {
          SparkSession.clearDefaultSession();
        } else {
          SparkSession.setDefaultSession((SparkSession) value);
        }
      }

      String shown(Object value) {
        return value.getClass().getName() + "@" + Integer.toHexString(System.identityHashCode(value));
      }
    };
  }

  private static JvmPart users() {
    return new JvmPart("Hadoop") {
      Map read() throws Exception {
        Map found = new HashMap();
        found.put("login user", UserGroupInformation.getLoginUser());
        found.put("security", Boolean.valueOf(UserGroupInformation.isSecurityEnabled()));
        return found;
      }

      void write(String key, Object value) throws Exception {
        if (!"login user".equals(key)) {
          super.write(key, value);
        }
        UserGroupInformation.setLoginUser((UserGroupInformation) value);
      }
    };
  }
}
