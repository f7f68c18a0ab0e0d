package org.apache.spark;

import java.io.Closeable;
import java.io.IOException;
import org.apache.spark.api.python.PythonAccumulatorV2;
import org.apache.spark.unsafe.Platform;

/** Python's accumulator with the same other end as a given one. How Spark names that end differs from version to version. */
abstract class CopiedAccumulator extends PythonAccumulatorV2 {
  CopiedAccumulator(PythonAccumulatorV2 given) {
    super(
        (String) field(given, "serverHost"), ((Integer) field(given, "serverPort")).intValue(),
        (String) field(given, "secretToken"));
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
