package org.apache.spark;

import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.config.LoggerConfig;

/** What of Spark is logged, by logger; the root's name is "". */
final class JvmLogLevels extends JvmPart {
  private final LoggerContext context = (LoggerContext) LogManager.getContext(false);

  JvmLogLevels() {
    super("log level");
    org.apache.log4j.LogManager.getRootLogger(); // the bridge of log4j 1 sets a level for itself when it is first used
  }

  Map read() {
    Map found = new HashMap();
    for (Iterator it = context.getConfiguration().getLoggers().entrySet().iterator(); it.hasNext(); ) {
      Map.Entry entry = (Map.Entry) it.next();
      found.put(entry.getKey(), ((LoggerConfig) entry.getValue()).getLevel());
    }
    return found;
  }

  void write(String key, Object value) {
    if (value == null) {
      context.getConfiguration().removeLogger(key);
    } else {
      LoggerConfig logger = (LoggerConfig) context.getConfiguration().getLoggers().get(key);
      if (logger == null) {
        context.getConfiguration().addLogger(key, new LoggerConfig(key, (Level) value, true));
      } else {
        logger.setLevel((Level) value);
      }
    }
    context.updateLoggers();
  }
}
