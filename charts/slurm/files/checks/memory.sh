#!/bin/sh
# Writes patterns to 256 MiB of memory and reads them back. Measures copy_rate.
command -v perl >/dev/null || { echo "perl is not installed on the node"; exit 77; }
# shellcheck disable=SC2016  # Perl has the variables.
exec perl -e '
use strict; use warnings;
sub now { open my $file, "<", "/proc/uptime" or die "/proc/uptime: $!\n"; return (split " ", <$file>)[0] }
my ($size, $begin, $bytes) = (64 * 1024 * 1024, now(), 0);
for my $pattern ("\x55", "\xaa", "\x00", "\xff") {
  my $block = $pattern x $size;
  my $copy = $block;
  if ($copy ne $block || $copy =~ /[^\Q$pattern\E]/) {
    printf "memory returns other data than was written (pattern %02x)\n", ord $pattern;
    exit 1;
  }
  $bytes += 2 * $size;
}
printf "measure copy_rate %.1fMB/s\n", $bytes / (now() - $begin + 0.01) / 1e6;
'
