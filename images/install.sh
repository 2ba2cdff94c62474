#!/bin/sh
# Installs one definition into the root file system it runs in: `install.sh FOLDER`.
# Every Containerfile of images/ runs it, and so does the build without an engine, so that both use the same packages.
#
# FOLDER/packages.txt   Debian packages, one a line; NAME=VERSION* as for apt-get; # starts a comment
# FOLDER/prepare.sh     runs before the packages are installed (optional)
# FOLDER/rootfs/        files to copy after that (optional)
# FOLDER/setup.sh       runs last (optional)
#
# If /var/lib/apt/lists and /var/cache/apt/archives are mounted, their content is used and not deleted.
set -eu

folder=$1
lists=/var/lib/apt/lists
archives=/var/cache/apt/archives
policy=/usr/sbin/policy-rc.d
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8

# Packages must not start their daemons.
had_policy=yes
if [ ! -e "$policy" ]; then
  had_policy=no
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
fi

if [ -e "$folder/prepare.sh" ]; then
  sh "$folder/prepare.sh"
fi

packages=$(sed 's/#.*//' "$folder/packages.txt")
if [ -z "$(find "$lists" -name '*Packages*' -print -quit)" ]; then
  apt-get update --quiet
fi
# Unsafe I/O: an interrupted build is discarded as a whole.
# shellcheck disable=SC2086 # one word for each package
apt-get install --quiet --yes --no-install-recommends --option DPkg::Options::=--force-unsafe-io $packages

if [ -d "$folder/rootfs" ]; then
  cp -R "$folder/rootfs/." /
fi
if [ -e "$folder/setup.sh" ]; then
  sh "$folder/setup.sh"
fi

# Every package's copyright file stays at Debian's path. This is a summary of the licences.
licences=/usr/share/doc/IMAGE-LICENSES
{
  echo "Debian packages of this image and the licences that their copyright files"
  echo "(/usr/share/doc/PACKAGE/copyright) name. 'see file' means that the file is prose."
  echo
  dpkg-query --show --showformat '${Package} ${Version}\n' | while read -r package version; do
    file=/usr/share/doc/$package/copyright
    names=
    if [ -e "$file" ]; then
      names=$(sed -n 's/^License: *\([^ ].*\)$/\1/p' "$file" | sort -u | paste -s -d ';' -)
    fi
    echo "$package $version: ${names:-see file}"
  done
} >"$licences"

if [ "$had_policy" = no ]; then
  rm "$policy"
fi
for folder in "$lists" "$archives"; do
  if ! mountpoint -q "$folder"; then
    find "$folder" -mindepth 1 -delete
  fi
done
rm -rf /var/cache/apt/*.bin /var/cache/debconf/*-old /var/cache/ldconfig/aux-cache /var/lib/dpkg/*-old \
  /var/log/apt/* /var/log/*.log /usr/share/bug /usr/share/lintian /usr/share/doc-base
