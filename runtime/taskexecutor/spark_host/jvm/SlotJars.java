package org.apache.spark;

import java.io.File;
import java.io.FileInputStream;
import java.io.FileNotFoundException;
import java.io.InputStream;
import java.math.BigInteger;
import java.net.URI;
import java.nio.file.CopyOption;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.FileAttribute;
import java.security.DigestInputStream;
import java.security.MessageDigest;
import org.apache.spark.util.Utils$;

/**
 * Local jars of `ADD JAR`. The tasks of all jobs fetch each one until the JVM ends, so what is served is a copy: named by its
 * content, so that jars with one name are told apart, and the jar of a job that comes every day is there once (R22, R25).
 */
final class SlotJars {
  private SlotJars() {}

  /** The file that is meant, relative to the job's directory; null for one of a storage that is not local. */
  static File meant(String path, String directory) throws Exception {
    URI uri = Utils$.MODULE$.resolveURI(path);
    if (uri.getScheme() != null && !"file".equals(uri.getScheme()) && !"local".equals(uri.getScheme())) {
      return null;
    }
    if (uri.getPath() == null) {
      throw new FileNotFoundException("ADD JAR " + path + " is refused: write a relative path without a scheme");
    }
    File file = new File(uri.getPath());
    String name = file.getPath();
    // Spark makes a relative path one below the JVM's directory, in which no job has anything.
    String ours = System.getProperty("user.dir") + File.separator;
    if (directory != null && name.startsWith(ours)) {
      name = name.substring(ours.length());
      file = new File(directory, name);
    }
    if (!file.isFile()) {
      throw new FileNotFoundException("ADD JAR " + name + " is refused: there is no such file");
    }
    return file;
  }

  /** A copy that stays until the JVM ends. */
  static File keep(File jar) throws Exception {
    Path folder = new File(System.getProperty("java.io.tmpdir"), "jars").toPath();
    Files.createDirectories(folder, new FileAttribute[0]);
    Path written = Files.createTempFile(folder, ".", ".part", new FileAttribute[0]);
    try {
      MessageDigest digest = MessageDigest.getInstance("SHA-256");
      InputStream content = new DigestInputStream(new FileInputStream(jar), digest);
      try {
        Files.copy(content, written, new CopyOption[] {StandardCopyOption.REPLACE_EXISTING});
      } finally {
        content.close();
      }
      String mark = new BigInteger(1, digest.digest()).toString(Character.MAX_RADIX);
      Path kept = folder.resolve(mark + "-" + jar.getName());
      if (!Files.exists(kept, new LinkOption[0])) {
        Files.move(written, kept, new CopyOption[] {StandardCopyOption.ATOMIC_MOVE});
      }
      return kept.toFile();
    } finally {
      Files.deleteIfExists(written);
    }
  }
}
