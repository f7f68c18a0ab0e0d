package org.apache.spark;

import org.apache.spark.api.python.PythonAccumulatorV2;
import scala.Option;

/** Python's accumulator with the same other end as a given one. How Spark names that end differs from version to version. */
abstract class CopiedAccumulator extends PythonAccumulatorV2 {
  CopiedAccumulator(PythonAccumulatorV2 given) throws Exception {
    super(option(given, "serverHost"), option(given, "serverPort"), option(given, "secretToken"), option(given, "socketPath"));
  }

  private static Option option(PythonAccumulatorV2 given, String name) throws Exception {
    return (Option) Fields.get(PythonAccumulatorV2.class, given, name);
  }
}
