#!/bin/sh
# Writes 64 MiB to each folder of CHECK_FOLDERS, and reads it back. Measures write_rate of the slowest folder.
slowest=
for folder in ${CHECK_FOLDERS:-/tmp}; do
  # Other users may write to the folder, too: no name that they can guess.
  file=$(mktemp "$folder/.check.XXXXXX" 2>/dev/null) || { echo "$folder can't be written to"; exit 1; }
  trap 'rm -f "$file"' EXIT
  begin=$(date +%s%N)
  if ! dd if=/dev/zero of="$file" bs=1M count=64 conv=fsync 2>/dev/null; then
    echo "$folder can't be written to"
    exit 1
  fi
  milliseconds=$((($(date +%s%N) - begin) / 1000000 + 1))
  if [ "$(head -c 67108864 /dev/zero | cksum)" != "$(cksum <"$file")" ]; then
    echo "$folder returns other data than was written"
    exit 1
  fi
  rm -f "$file"
  rate=$((67108864 / milliseconds / 1000))
  [ -n "$slowest" ] && [ "$slowest" -le "$rate" ] || slowest=$rate
done
echo "measure write_rate ${slowest}MB/s"
