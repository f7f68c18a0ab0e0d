package org.apache.spark;

import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.LoggerConfig;
import org.apache.logging.log4j.core.config.Property;
import org.apache.logging.log4j.core.layout.PatternLayout;

/**
 * Each line of log4j that is logged for a session, in its attempt's stderr, where spark-submit has it (R22). The JVM's own log has it
 * too, and the operator's conf of log4j says what is logged at all.
 */
final class SlotLogs extends AbstractAppender {
  private static final String NAME = "flinklike-jobs";

  /** As Spark's own. */
  private static final String PATTERN = "%d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex";

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
    byte[] line = getLayout().toByteArray(event);
    SlotOutput.take(true, line, 0, line.length);
  }
}
