package org.apache.spark;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;

/**
 * `spark-warehouse` of a job's directory. Its files outlive the JVM, and with it the catalog that knew them as tables: they
 * would be in the way of the attempt that runs again. So a file beside the directory says, from the job's first catalog on,
 * what lay there before (the job has brought it along); what lies there besides goes before another catalog is made (R22).
 * Dead at any step, the next one begins anew: the file comes whole and before any table, and goes with the job.
 */
final class JobWarehouse {
  private static final String DATABASE = ".db";

  private final File directory;
  private final File before;

  JobWarehouse(String job) {
    directory = new File(job, "spark-warehouse");
    // Where the JVM is another user than the maker of the job's directory, there is a place for it.
    File place = new File(new File(job).getParentFile(), "tables");
    before = place.isDirectory() ? new File(place, "before-tables") : new File(job + ".before-tables");
  }

  /** Called while the job has no catalog. */
  void prepare() throws IOException {
    if (Files.isSymbolicLink(directory.toPath())) {
      return; // the job's own: what lies there may be others'
    }
    if (!before.exists()) {
      note();
      return;
    }
    String text = new String(Files.readAllBytes(before.toPath()), StandardCharsets.UTF_8);
    clear(directory, "", new HashSet(Arrays.asList(text.split("\0"))));
  }

  private void note() throws IOException {
    Set found = new HashSet();
    list(directory, "", found);
    File made = new File(before.getPath() + ".tmp");
    Files.write(made.toPath(), String.join("\0", found).getBytes(StandardCharsets.UTF_8));
    Files.move(made.toPath(), before.toPath(), StandardCopyOption.ATOMIC_MOVE);
  }

  /** Names in the warehouse, and in databases of it: a job may make tables in one that it has brought along. */
  private static void list(File of, String prefix, Set found) {
    File[] files = filesOf(of);
    for (int i = 0; i < files.length; i++) {
      found.add(prefix + files[i].getName());
      if (isDatabase(files[i], prefix)) {
        list(files[i], files[i].getName() + "/", found);
      }
    }
  }

  private static void clear(File of, String prefix, Set kept) throws IOException {
    File[] files = filesOf(of);
    for (int i = 0; i < files.length; i++) {
      if (!kept.contains(prefix + files[i].getName())) {
        delete(files[i]);
      } else if (isDatabase(files[i], prefix)) {
        clear(files[i], files[i].getName() + "/", kept);
      }
    }
  }

  private static boolean isDatabase(File file, String prefix) {
    return prefix.length() == 0 && file.getName().endsWith(DATABASE) && !Files.isSymbolicLink(file.toPath());
  }

  private static File[] filesOf(File of) {
    File[] files = of.listFiles();
    return files == null ? new File[0] : files; // none: no directory
  }

  /** Links are deleted, never followed. */
  private static void delete(File file) throws IOException {
    if (!Files.isSymbolicLink(file.toPath())) {
      File[] files = filesOf(file);
      for (int i = 0; i < files.length; i++) {
        delete(files[i]);
      }
    }
    Files.delete(file.toPath());
  }
}
