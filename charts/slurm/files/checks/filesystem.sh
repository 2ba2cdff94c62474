#!/bin/sh
# Creates, reads, renames and deletes 20 files in each folder of CHECK_FOLDERS. Measures latency, the longest time for one file.
longest=0
for folder in ${CHECK_FOLDERS:-/tmp}; do
  # Other users may write to the folder, too: no name that they can guess.
  own=$(mktemp -d "$folder/.check.XXXXXX" 2>/dev/null) || { echo "$folder can't be written to"; exit 1; }
  trap 'rm -rf "$own"' EXIT
  for number in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    begin=$(date +%s%N)
    if ! { echo "$number" >"$own/a" && read -r found <"$own/a" && [ "$found" = "$number" ] && mv "$own/a" "$own/b" && rm "$own/b"; }; then
      echo "$folder fails to store a file"
      exit 1
    fi
    time=$((($(date +%s%N) - begin) / 1000))
    [ "$time" -le "$longest" ] || longest=$time
  done
  rm -rf "$own"
done
echo "measure latency ${longest}us"
