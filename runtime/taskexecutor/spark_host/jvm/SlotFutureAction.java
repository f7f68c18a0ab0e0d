package org.apache.spark;

import scala.concurrent.CanAwait;
import scala.concurrent.duration.Duration;

/** A submitted job of one session: a thread that blocks for its result has it when the accumulators have what it added (R22). */
public final class SlotFutureAction extends SimpleFutureAction {
  private SlotAccumulators accumulators;

  private SlotFutureAction() {
    super(null, null); // never run: `of` copies
  }

  static SlotFutureAction of(SimpleFutureAction submitted, SlotAccumulators accumulators) {
    try {
      SlotFutureAction made = (SlotFutureAction) Fields.copy(submitted, SlotFutureAction.class);
      made.accumulators = accumulators;
      return made;
    } catch (Exception error) {
      throw new IllegalStateException("submitting a job", error);
    }
  }

  public Object result(Duration atMost, CanAwait permit) throws Exception {
    try {
      return super.result(atMost, permit);
    } finally {
      accumulators.await();
    }
  }
}
