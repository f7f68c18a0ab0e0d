package org.apache.spark;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.List;

/**
 * Private fields of Spark, Hadoop and py4j: read, replaced, and copied into an object of a subclass whose constructor
 * is not run. Every field that is named anywhere is listed in names.txt, which `missing` compares with what is installed.
 */
public final class Fields {
  private Fields() {}

  /** The declared field of a class, made accessible; declared final or not. */
  public static Field find(Class owner, String name) throws NoSuchFieldException {
    Field field = owner.getDeclaredField(name);
    field.setAccessible(true);
    return field;
  }

  /** The value of a field that `owner` declares. `target` is null for a static one. */
  public static Object get(Class owner, Object target, String name) throws Exception {
    return find(owner, name).get(target);
  }

  /** Replace the value of an instance field that `owner` declares, final ones too. */
  public static void set(Class owner, Object target, String name, Object value) throws Exception {
    find(owner, name).set(target, value);
  }

  /** What a thread-local variable holds in another thread, which stands still; null for nothing. `kind`: the field of Thread. */
  public static Object local(Thread thread, String kind, ThreadLocal variable) throws Exception {
    Object map = get(Thread.class, thread, kind);
    if (map == null) {
      return null;
    }
    Method look = map.getClass().getDeclaredMethod("getEntry", new Class[] {ThreadLocal.class});
    look.setAccessible(true);
    Object entry = look.invoke(map, new Object[] {variable});
    return entry == null ? null : get(entry.getClass(), entry, "value");
  }

  /** An object of `subclass` that shares every instance field's value with `original`. No constructor runs. */
  public static Object copy(Object original, Class subclass) throws Exception {
    if (!original.getClass().isAssignableFrom(subclass)) {
      throw new IllegalArgumentException(subclass.getName() + " does not extend " + original.getClass().getName());
    }
    Object copied = unsafe().allocateInstance(subclass);
    for (Class owner = original.getClass(); owner != null; owner = owner.getSuperclass()) {
      Field[] fields = owner.getDeclaredFields();
      for (int i = 0; i < fields.length; i++) {
        if (!Modifier.isStatic(fields[i].getModifiers())) {
          fields[i].setAccessible(true);
          fields[i].set(copied, fields[i].get(original));
        }
      }
    }
    return copied;
  }

  private static sun.misc.Unsafe unsafe() throws Exception {
    return (sun.misc.Unsafe) find(sun.misc.Unsafe.class, "theUnsafe").get(null);
  }

  /**
   * What of the listed names is not there. A name is "class", "class#field type" or "class#method(types)", each type as
   * Class.getName() gives it.
   */
  public static List missing(String[] names) {
    List found = new ArrayList();
    for (int i = 0; i < names.length; i++) {
      String problem = problem(names[i]);
      if (problem != null) {
        found.add(problem);
      }
    }
    return found;
  }

  private static String problem(String name) {
    int at = name.indexOf('#');
    String owner = at < 0 ? name : name.substring(0, at);
    Class found;
    try {
      found = Class.forName(owner, false, ClassLoader.getSystemClassLoader());
    } catch (ClassNotFoundException error) {
      return "no class " + owner;
    } catch (LinkageError error) {
      return owner + " does not load: " + error;
    }
    if (at < 0) {
      return null;
    }
    String member = name.substring(at + 1);
    return member.endsWith(")") ? methodProblem(found, member) : fieldProblem(found, member);
  }

  private static String fieldProblem(Class owner, String member) {
    int at = member.indexOf(' ');
    String name = member.substring(0, at);
    String type = member.substring(at + 1);
    try {
      String actual = owner.getDeclaredField(name).getType().getName();
      return actual.equals(type) ? null : owner.getName() + "." + name + " is a " + actual + ", not a " + type;
    } catch (NoSuchFieldException error) {
      return owner.getName() + " has no field " + name;
    }
  }

  private static String methodProblem(Class owner, String member) {
    Method[] methods = owner.getDeclaredMethods();
    for (int i = 0; i < methods.length; i++) {
      StringBuilder signature = new StringBuilder(methods[i].getName()).append('(');
      Class[] types = methods[i].getParameterTypes();
      for (int j = 0; j < types.length; j++) {
        signature.append(j == 0 ? "" : ",").append(types[j].getName());
      }
      if (signature.append(')').toString().equals(member)) {
        return null;
      }
    }
    return owner.getName() + " has no method " + member;
  }
}
