package org.apache.hadoop.fs;

import java.lang.reflect.Constructor;
import java.net.URI;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.local.LocalFs;
import org.apache.hadoop.fs.local.SlotLocalFs;
import org.apache.spark.Fields;

/** Puts file systems that look relative names up in the job's directory (R24) in the place of Hadoop's own. */
public final class SlotLocalFiles {
  private SlotLocalFiles() {}

  /** From now on `file:` is ours in this JVM, for both interfaces of Hadoop. Before anything has opened a file. */
  public static void install() throws Exception {
    // The first look loads the list of file systems, which ours then changes.
    FileSystem.get(URI.create("file:///"), new Configuration()).close();
    ((Map) Fields.get(FileSystem.class, null, "SERVICE_FILE_SYSTEMS")).put("file", SlotLocalFileSystem.class);
    Constructor made = SlotLocalFs.class.getDeclaredConstructor(new Class[] {URI.class, Configuration.class});
    made.setAccessible(true);
    ((Map) Fields.get(AbstractFileSystem.class, null, "CONSTRUCTOR_CACHE")).put(LocalFs.class, made);
  }
}
