package org.apache.spark;

import java.util.Map;
import java.util.regex.Pattern;

/** One part of what a JVM has once for all sessions (R45): read, and put back, value by value. */
abstract class JvmPart {
  private static final Pattern HIDDEN =
      Pattern.compile(".*(passw|passphrase|secret|token|key|credential).*", Pattern.CASE_INSENSITIVE);
  private static final int LENGTH_MAX = 200;

  final String name;

  JvmPart(String name) {
    this.name = name;
  }

  /** What it is now, by key; the key of a part that is one value is "". */
  abstract Map read() throws Exception;

  /** Put a value back; null removes the key. Throws where it cannot: then another JVM has to take this one's place. */
  void write(String key, Object value) throws Exception {
    throw new UnsupportedOperationException(name + " cannot be put back");
  }

  /** True for a key that Spark, Hadoop or Java set for themselves when something of theirs is used for the first time. */
  boolean isOwn(String key) {
    return false;
  }

  /** True if a session takes a copy when it is opened, which cannot be put back. */
  boolean isCopied() {
    return false;
  }

  /** A change in words, on one line; no value whose name says that it is a secret. */
  final String words(String key, Object was, Object is) {
    boolean isHidden = HIDDEN.matcher(key).matches();
    String what = key.length() == 0 ? name : name + " " + text(key);
    return what + ": from " + words(was, isHidden) + " to " + words(is, isHidden);
  }

  private String words(Object value, boolean isHidden) {
    if (value == null) {
      return "none";
    }
    return isHidden ? "a value that is not shown" : "'" + text(shown(value)) + "'";
  }

  /** A value as people know it. */
  String shown(Object value) {
    return String.valueOf(value);
  }

  private static String text(String any) {
    String line = any.replaceAll("\\p{Cntrl}", "?");
    return line.length() <= LENGTH_MAX ? line : line.substring(0, LENGTH_MAX) + "...";
  }
}
