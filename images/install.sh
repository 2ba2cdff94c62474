#!/bin/sh
# Installs one definition into the root file system it runs in: `install.sh FOLDER`.
# Run by every Containerfile of images/ and by the build without an engine alike, so that there is one list of packages.
#
# FOLDER/packages.txt   Debian packages, one a line; NAME=VERSION* as apt-get takes it; # starts a comment
# FOLDER/prepare.sh     run before they are installed (optional)
# FOLDER/rootfs/        laid over the file system after that (optional)
# FOLDER/setup.sh       run last (optional)
#
# /var/lib/apt/lists and /var/cache/apt/archives may be mounted from outside: what is in them is then used and kept.
set -eu

folder=$1
lists=/var/lib/apt/lists
archives=/var/cache/apt/archives
policy=/usr/sbin/policy-rc.d
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8

# Packages must not start the daemons they bring.
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
# Unsafe I/O: a build that is cut off is thrown away whole.
# shellcheck disable=SC2086 # one word for each package
apt-get install --quiet --yes --no-install-recommends --option DPkg::Options::=--force-unsafe-io $packages

if [ -d "$folder/rootfs" ]; then
  cp -R "$folder/rootfs/." /
fi
if [ -e "$folder/setup.sh" ]; then
  sh "$folder/setup.sh"
fi

# Every package's copyright file stays where Debian has it; this names the licences at a glance.
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
