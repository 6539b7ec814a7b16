#!/bin/bash
for archive in $(ls -r backups/*.tar.gz); do
  if gzip -t "$archive" 2> /dev/null; then
    mkdir -p restored
    exec tar -xzf "$archive" -C restored etc
  fi
done
exit 1
