package org.apache.spark;

import java.io.Closeable;
import java.io.IOException;
import org.apache.spark.api.python.PythonAccumulatorV2;
import org.apache.spark.unsafe.Platform;
import scala.Option;

/** Python's accumulator with the same other end as a given one. How Spark names that end differs from version to version. */
abstract class CopiedAccumulator extends PythonAccumulatorV2 {
  CopiedAccumulator(PythonAccumulatorV2 given) {
    super(option(given, "serverHost"), option(given, "serverPort"), option(given, "secretToken"), option(given, "socketPath"));
  }

  private static Option option(PythonAccumulatorV2 given, String name) {
    return (Option) field(given, name);
  }

  private static Object field(PythonAccumulatorV2 given, String name) {
    try {
      return Fields.get(PythonAccumulatorV2.class, given, name);
    } catch (Exception error) {
      Platform.throwException(error);
      return null;
    }
  }

  /** Close the connection, which Spark would keep for ever. */
  void disconnect() throws IOException {
    Closeable socket = (Closeable) field(this, "socket");
    if (socket != null) {
      socket.close();
    }
  }
}
