package org.apache.spark;

import org.apache.spark.api.python.PythonAccumulatorV2;

/** As the class of this name one folder up, for Spark 4.0. */
abstract class CopiedAccumulator extends PythonAccumulatorV2 {
  CopiedAccumulator(PythonAccumulatorV2 given) throws Exception {
    super(
        (String) Fields.get(PythonAccumulatorV2.class, given, "serverHost"),
        ((Integer) Fields.get(PythonAccumulatorV2.class, given, "serverPort")).intValue(),
        (String) Fields.get(PythonAccumulatorV2.class, given, "secretToken"));
  }
}
