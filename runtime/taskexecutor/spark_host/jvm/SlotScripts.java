package org.apache.spark;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ScriptTransformation;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import scala.Function1;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

/**
 * The scripts of `SELECT TRANSFORM ... USING`, which the JVM starts: each begins with words of its session, by which the
 * shell names its session (R29). A rule of every session, those too that a session makes.
 */
public final class SlotScripts extends Rule {
  private final String words;

  private SlotScripts(String words) {
    this.words = words;
  }

  /** For all sessions with these extensions that are made from now on. */
  public static void install(SparkSessionExtensions extensions) {
    extensions.injectPreCBORule(new AbstractFunction1() {
      public Object apply(Object session) {
        SparkContext context = ((SparkSession) session).sparkContext();
        return new SlotScripts(context instanceof SlotContext ? ((SlotContext) context).scriptWords() : "");
      }
    });
  }

  public TreeNode apply(TreeNode plan) {
    if (words.length() == 0) {
      return plan;
    }
    return ((LogicalPlan) plan).transformDown(new AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        return node instanceof ScriptTransformation && !((ScriptTransformation) node).script().startsWith(words);
      }

      public Object applyOrElse(Object node, Function1 otherwise) {
        if (!isDefinedAt(node)) {
          return otherwise.apply(node);
        }
        ScriptTransformation script = (ScriptTransformation) node;
        return script.copy(words + script.script(), script.output(), script.child(), script.ioschema());
      }
    });
  }
}
