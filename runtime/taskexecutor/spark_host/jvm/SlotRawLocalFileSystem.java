package org.apache.hadoop.fs;

/** Local files, with relative names looked up in the directory of the job that asks. */
public class SlotRawLocalFileSystem extends RawLocalFileSystem {
  public Path getWorkingDirectory() {
    return SlotDirectory.orElse(super.getWorkingDirectory());
  }
}
