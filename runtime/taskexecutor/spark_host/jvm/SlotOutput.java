package org.apache.spark;

import java.io.File;
import java.io.FileNotFoundException;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.file.Files;
import org.apache.logging.log4j.ThreadContext;
import scala.Console$;
import scala.util.DynamicVariable;

/**
 * What this JVM prints and logs for a session: in the files of its attempt's own output, where the slot writes too (R22). What
 * cannot be attributed beyond doubt, and what the files do not take, stays where it was, in the JVM's log. The files are bounded
 * where they are kept, so no thread here waits for a reader.
 */
public final class SlotOutput {
  /** Spark shows the local properties with this prefix to log4j, for all that a thread does about a task. */
  static final String MARK = "mdc." + SlotSession.PROPERTY;

  /** A link in a session's directory, to the logs of the attempt (`worker_environment.LOGS_LINK`). */
  private static final String LOGS = "logs";

  /** What threads were started for that serve one session: its connections, its streaming queries (the last: of Spark 4.0). */
  private static final String[] OF_ONE_SESSION = {
    "py4j.ClientServerConnection",
    "org.apache.spark.sql.execution.streaming.runtime.StreamExecution",
    "org.apache.spark.sql.execution.streaming.StreamExecution"
  };

  /** Whether a thread is one of those. Others, such as those of pools, inherit the mark of whoever had them started. */
  private static final ThreadLocal OWN = new ThreadLocal();

  private static PrintStream out;
  private static PrintStream err;

  private final OutputStream stdout;
  private final OutputStream stderr;

  private SlotOutput(File logs) throws IOException {
    stdout = appending(new File(logs, "stdout"));
    OutputStream opened = null;
    try {
      opened = appending(new File(logs, "stderr"));
    } finally {
      if (opened == null) {
        stdout.close();
      }
    }
    stderr = opened;
  }

  /** Opened here, by the session's own thread: whatever keeps an open waiting, no lock of all jobs waits for it. */
  private static OutputStream appending(File file) throws IOException {
    if (!file.isFile() || Files.isSymbolicLink(file.toPath())) {
      throw new FileNotFoundException(file + " is no file");
    }
    return new FileOutputStream(file, true);
  }

  /** That of the attempt for which a session works now; `inside`: a path in the session's directory. Null without one. */
  static SlotOutput open(String inside) {
    File logs = inside == null ? null : new File(new File(inside).getParentFile(), LOGS);
    if (logs == null || !logs.exists()) {
      return null;
    }
    try {
      return new SlotOutput(logs);
    } catch (IOException error) {
      err.println("what Spark prints and logs for a job stays in this log: " + error);
      return null;
    }
  }

  void close() {
    close(stdout);
    close(stderr);
  }

  private static void close(OutputStream stream) {
    try {
      stream.close();
    } catch (IOException error) {
      err.println("the output of an attempt has not closed: " + error); // nothing of it was in a buffer
    }
  }

  /** Have all that is printed and logged here come by; once, and again where a job has put something else in place. */
  static synchronized void install() throws Exception {
    if (out == null) {
      out = new PrintStream(new Parting(System.out, false), true, "UTF-8");
      err = new PrintStream(new Parting(System.err, true), true, "UTF-8");
      printOfScala("outVar", out);
      printOfScala("errVar", err);
    }
    if (System.out != out) {
      System.setOut(out);
    }
    if (System.err != err) {
      System.setErr(err);
    }
    SlotLogs.install();
  }

  /** Scala keeps the streams that it finds first; for each thread, which inherits them. */
  private static void printOfScala(String variable, PrintStream stream) throws Exception {
    Object found = Fields.get(Console$.class, null, variable);
    Fields.set(DynamicVariable.class, found, "scala$util$DynamicVariable$$init", stream);
  }

  /** True if the bytes are now in the output of the attempt for which the session works; null is no session. */
  static boolean take(SlotSession session, boolean isError, byte[] bytes, int offset, int length) {
    SlotOutput output = session == null ? null : session.output();
    if (output == null) {
      return false;
    }
    try {
      (isError ? output.stderr : output.stdout).write(bytes, offset, length);
      return true;
    } catch (IOException error) { // closed just now, or the disk is full
      return false;
    }
  }

  /** That of the calling thread, null where there is doubt. */
  static SlotSession session() {
    TaskContext task = TaskContext$.MODULE$.get();
    if (task != null) {
      return SlotSession.withTag(task.getLocalProperty(SlotSession.PROPERTY));
    }
    String mark = ThreadContext.get(MARK);
    if (mark != null) {
      return SlotSession.withTag(mark);
    }
    return SharedThreads.isCurrent() || isOfOneSession() ? SlotSession.current() : null;
  }

  private static boolean isOfOneSession() {
    Boolean known = (Boolean) OWN.get();
    if (known == null) {
      known = Boolean.valueOf(isOfOneSession(beginOf(Thread.currentThread().getStackTrace())));
      OWN.set(known);
    }
    return known.booleanValue();
  }

  private static boolean isOfOneSession(String begin) {
    for (int i = 0; i < OF_ONE_SESSION.length; i++) {
      if (begin.startsWith(OF_ONE_SESSION[i])) {
        return true;
      }
    }
    return false;
  }

  /** The class whose code a thread was started to run. */
  private static String beginOf(StackTraceElement[] stack) {
    int last = stack.length - 1;
    while (last > 0 && stack[last].getClassName().equals("java.lang.Thread")) {
      last--;
    }
    return last < 0 ? "" : stack[last].getClassName();
  }

  /** Below a stream of Java, whose callers it tells apart. */
  private static final class Parting extends OutputStream {
    private final PrintStream ofJvm;
    private final boolean isError;

    Parting(PrintStream ofJvm, boolean isError) {
      this.ofJvm = ofJvm;
      this.isError = isError;
    }

    public void write(int one) {
      write(new byte[] {(byte) one}, 0, 1);
    }

    public void write(byte[] bytes, int offset, int length) {
      if (!take(session(), isError, bytes, offset, length)) {
        ofJvm.write(bytes, offset, length);
      }
    }

    public void flush() {
      ofJvm.flush();
    }
  }
}
