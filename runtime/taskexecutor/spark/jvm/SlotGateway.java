package org.apache.spark;

import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import py4j.Gateway;
import py4j.ReturnObject;

/** A session's py4j gateway that ends no JVM (R23). It is a guard against accidents, no boundary against intent. */
public final class SlotGateway extends Gateway {
  private static final Set ENDS = new HashSet(Arrays.asList(new String[] {"exit", "halt"}));
  private static final Set OWNERS =
      new HashSet(Arrays.asList(new String[] {"java.lang.System", "java.lang.Runtime", "java.lang.Shutdown"}));

  private SlotContext context;

  private SlotGateway() {
    super(null); // never run: `of` copies
  }

  static SlotGateway of(Gateway gateway, SlotContext context) throws Exception {
    SlotGateway made = (SlotGateway) Fields.copy(gateway, SlotGateway.class);
    made.context = context;
    return made;
  }

  public ReturnObject invoke(String method, String target, List arguments) {
    if (ENDS.contains(method)) {
      String owner = target.startsWith("z:") ? target.substring(2) : nameOf(getObjectFromId(target));
      refuse(owner, method);
    } else if ("invoke".equals(method)) {
      Object called = getObjectFromId(target);
      if (called instanceof Method && ENDS.contains(((Method) called).getName())) {
        refuse(((Method) called).getDeclaringClass().getName(), ((Method) called).getName());
      }
    }
    try {
      return super.invoke(method, target, arguments);
    } finally {
      awaitAccumulators();
    }
  }

  /** A call that has run tasks returns when the caller's accumulators have what the tasks added. */
  private void awaitAccumulators() {
    try {
      context.awaitAccumulators();
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt(); // the session is being closed: nobody waits for the call any more
    }
  }

  private static String nameOf(Object object) {
    return object == null ? "" : object.getClass().getName();
  }

  private static void refuse(String owner, String method) {
    if (OWNERS.contains(owner)) {
      throw new UnsupportedOperationException(
          owner + "." + method + " is refused: this JVM runs the Spark of other jobs too. "
              + "End a script with sys.exit(), or by reaching its end");
    }
  }
}
