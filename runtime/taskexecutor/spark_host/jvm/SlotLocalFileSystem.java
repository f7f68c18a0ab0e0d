package org.apache.hadoop.fs;

/** The file system `file:` of FileSystem. One object serves all slots. */
public class SlotLocalFileSystem extends LocalFileSystem {
  public SlotLocalFileSystem() {
    super(new SlotRawLocalFileSystem());
  }
}
