#!/bin/sh
# Sends data by TCP between two nodes for CHECK_SECONDS, in both directions one after the other. Measures bandwidth, the lower one.
# The steps run a program of the standard Perl, which all images of Slurm have.
# shellcheck disable=SC2016  # Perl has the variables.
program='
use strict; use warnings; use Socket; use Time::HiRes qw(time alarm);
my ($sender, $folder, @nodes) = @ARGV;
my $own = $ENV{SLURMD_NODENAME};
my $port = 20000 + $ENV{SLURM_JOB_ID} % 10000 + $sender;
alarm(20 + $ENV{SECONDS_EACH});
if ($own ne $nodes[$sender]) {
  socket(my $listener, PF_INET, SOCK_STREAM, 0) or die "socket: $!\n";
  setsockopt($listener, SOL_SOCKET, SO_REUSEADDR, 1);
  bind($listener, sockaddr_in($port, INADDR_ANY)) or die "port $port: $!\n";
  listen($listener, 1);
  accept(my $client, $listener) or die "accept: $!\n";
  my ($bytes, $begin, $data) = (0, time);
  while (my $n = sysread($client, $data, 1048576)) { $bytes += $n }
  my $seconds = time - $begin;
  printf "rate %d\n", $bytes * 8 / $seconds / 1e6 if $seconds > 0;
} else {
  my $address = inet_aton($nodes[1 - $sender]) or die "$nodes[1 - $sender] has no address\n";
  my $socket;
  for (my $end = time + 10;;) {
    socket($socket, PF_INET, SOCK_STREAM, 0);
    last if connect($socket, sockaddr_in($port, $address));
    die "$nodes[1 - $sender] does not answer: $!\n" if time > $end;
    select(undef, undef, undef, 0.1);
  }
  my $block = "\0" x 1048576;
  for (my $end = time + $ENV{SECONDS_EACH}; time < $end;) { defined syswrite($socket, $block) or die "send: $!\n" }
}
'
export SECONDS_EACH="${CHECK_SECONDS:-2}"
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
lowest=
for sender in 0 1; do
  # shellcheck disable=SC2086  # Two words.
  output=$(srun --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=1 perl -e "$program" "$sender" - $nodes 2>&1)
  rate=$(echo "$output" | sed -n 's/^rate //p')
  [ -n "$rate" ] || { echo "$(echo "$output" | grep -v '^srun: ' | grep -m 1 . || echo "no data arrived")"; exit 1; }
  [ -n "$lowest" ] && [ "$lowest" -le "$rate" ] || lowest=$rate
done
echo "measure bandwidth ${lowest}Mbit/s"
