package org.apache.spark;

import java.util.List;

/** A step of an end: each is tried whatever became of those before, and what fails is told. */
abstract class Step {
  private final String what;

  Step(String what) {
    this.what = what;
  }

  abstract void take() throws Exception;

  void tryIt(List problems) {
    try {
      take();
    } catch (Throwable error) {
      problems.add(what + ": " + error);
    }
  }
}
