#!/usr/bin/perl
# Writes patterns to 256 MiB of memory and reads them back. Measures copy_rate.
use strict;
use warnings;
use Time::HiRes qw(time);
my ($size, $begin, $bytes) = (64 * 1024 * 1024, time, 0);
for my $pattern ("\x55", "\xaa", "\x00", "\xff") {
  my $block = $pattern x $size;
  my $copy = $block;
  if ($copy ne $block || $copy =~ /[^\Q$pattern\E]/) {
    printf "memory returns other data than was written (pattern %02x)\n", ord $pattern;
    exit 1;
  }
  $bytes += 2 * $size;
}
printf "measure copy_rate %.1fMB/s\n", $bytes / (time - $begin) / 1e6;
