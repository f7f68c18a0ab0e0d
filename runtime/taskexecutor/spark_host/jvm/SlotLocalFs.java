package org.apache.hadoop.fs.local;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.SlotDirectory;

/** The file system `file:` of FileContext, which keeps the checkpoints of streams. */
public class SlotLocalFs extends LocalFs {
  SlotLocalFs(URI uri, Configuration conf) throws IOException, URISyntaxException {
    super(conf);
  }

  public Path getInitialWorkingDirectory() {
    return SlotDirectory.orElse(super.getInitialWorkingDirectory());
  }
}
