#!/bin/bash
# Keeps seven daily archives of a folder.
set -euo pipefail

source_dir=${1:?usage: backup.sh SOURCE TARGET}
target_dir=${2:?usage: backup.sh SOURCE TARGET}
stamp=$(date +%Y-%m-%d)

mkdir -p "$target_dir"
tar -czf "$target_dir/$stamp.tar.gz" -C "$source_dir" .

count=0
for archive in $(ls -r "$target_dir"/*.tar.gz); do
  count=$((count + 1))
  if [ "$count" -gt 7 ]; then
    echo "removing $archive" >&2
    rm -f "$archive"
  fi
done

if ! tar -tzf "$target_dir/$stamp.tar.gz" > /dev/null; then
  echo "archive $stamp is damaged" >&2
  exit 1
fi
echo "kept $count archives"
