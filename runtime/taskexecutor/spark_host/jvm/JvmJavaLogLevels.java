package org.apache.spark;

import java.util.Enumeration;
import java.util.HashMap;
import java.util.Map;
import java.util.logging.Level;
import java.util.logging.LogManager;
import java.util.logging.Logger;

/** The levels that loggers of java.util.logging have of their own; the root's name is "". */
final class JvmJavaLogLevels extends JvmPart {
  JvmJavaLogLevels() {
    super("log level of java.util.logging");
  }

  Map read() {
    LogManager all = LogManager.getLogManager();
    Map found = new HashMap();
    for (Enumeration it = all.getLoggerNames(); it.hasMoreElements(); ) {
      String name = (String) it.nextElement();
      Logger logger = all.getLogger(name);
      if (logger != null && logger.getLevel() != null) { // an unused logger is freed
        found.put(name, logger.getLevel());
      }
    }
    return found;
  }

  void write(String key, Object value) {
    Logger.getLogger(key).setLevel((Level) value);
  }
}
