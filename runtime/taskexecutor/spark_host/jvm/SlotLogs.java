package org.apache.spark;

import java.util.Locale;
import java.util.regex.Pattern;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.LoggerConfig;
import org.apache.logging.log4j.core.config.Property;
import org.apache.logging.log4j.core.layout.PatternLayout;

/**
 * The lines of log4j that are logged for a session, in its attempt's stderr, where spark-submit has them (R22): those from
 * the job's log level on; of a job that has set none, warnings of Spark and Hadoop, and all lines of other loggers. The
 * operator's conf of log4j says what is logged at all.
 */
final class SlotLogs extends AbstractAppender {
  private static final String NAME = "flinklike-jobs";

  /** As Spark's own. */
  private static final String PATTERN = "%d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex";

  /**
   * What Spark says of each hidden directory that is read by its own name. It is read all the same, and that of an
   * attempt (`ctx.output_path`) is hidden until its job commits: of it the warning is wrong.
   */
  private static final String DATA_SOURCE = "org.apache.spark.sql.execution.datasources.DataSource";

  private static final Pattern OWN_OUTPUTS = Pattern.compile("All paths were ignored:(\\s+\\S*/\\.attempt-[^/\\s]*)+\\s*");

  private static final String FRAMEWORKS = "org.apache.";

  private SlotLogs() {
    super(NAME, null, PatternLayout.newBuilder().withPattern(PATTERN).build(), true, Property.EMPTY_ARRAY);
  }

  /** Into what log4j is configured with now: a job may have had it configured anew. */
  static void install() {
    LoggerContext context = (LoggerContext) LogManager.getContext(false);
    LoggerConfig root = context.getConfiguration().getRootLogger();
    if (!root.getAppenders().containsKey(NAME)) {
      SlotLogs made = new SlotLogs();
      made.start();
      root.addAppender(made, null, null);
    }
  }

  public void append(LogEvent event) {
    SlotSession session = SlotOutput.session();
    if (session != null
        && event.getLevel().isMoreSpecificThan(least(session, event.getLoggerName()))
        && !isOfOwnOutputs(event)) {
      byte[] line = getLayout().toByteArray(event);
      SlotOutput.take(session, true, line, 0, line.length);
    }
  }

  private static boolean isOfOwnOutputs(LogEvent event) {
    return DATA_SOURCE.equals(event.getLoggerName())
        && OWN_OUTPUTS.matcher(event.getMessage().getFormattedMessage()).matches();
  }

  private static Level least(SlotSession session, String logger) {
    if (session.logLevel() != null) {
      return session.logLevel();
    }
    return logger != null && logger.startsWith(FRAMEWORKS) ? Level.WARN : Level.ALL;
  }

  /** By its name. Raises IllegalArgumentException for others than Spark takes. */
  static Level level(String name) {
    Level found = Level.getLevel(name.trim().toUpperCase(Locale.ROOT));
    if (found == null) {
      throw new IllegalArgumentException(
          "the log level " + name + " is none of ALL, TRACE, DEBUG, INFO, WARN, ERROR, FATAL, OFF");
    }
    return found;
  }

  /** The level from which on this JVM logs, whatever a job wants. */
  static Level ofJvm() {
    return LogManager.getRootLogger().getLevel();
  }
}
