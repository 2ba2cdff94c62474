#!/bin/sh
# Sends data by TCP between two nodes for CHECK_SECONDS, in both directions one after the other. Measures bandwidth, the lower one.
# The steps run a program of the standard Perl.
command -v perl >/dev/null || { echo "perl is not installed on the node"; exit 77; }
# shellcheck disable=SC2016  # Perl has the variables.
program='
use strict; use warnings; use Socket qw(:DEFAULT getaddrinfo pack_sockaddr_in6 IN6ADDR_ANY);
sub now { open my $file, "<", "/proc/uptime" or die "/proc/uptime: $!\n"; return (split " ", <$file>)[0] }
my ($sender, $receiver, $address) = @ARGV;
my $port = 20000 + $ENV{SLURM_JOB_ID} % 10000 + $sender;
alarm(20 + $ENV{SECONDS_EACH});
my ($error, $found) = getaddrinfo($address, $port, {socktype => SOCK_STREAM});
die "$receiver has no address\n" if $error || !$found;
my $family = $found->{family};
if ($ENV{SLURMD_NODENAME} eq $receiver) {
  socket(my $listener, $family, SOCK_STREAM, 0) or die "socket: $!\n";
  setsockopt($listener, SOL_SOCKET, SO_REUSEADDR, 1);
  bind($listener, $family == AF_INET ? pack_sockaddr_in($port, INADDR_ANY) : pack_sockaddr_in6($port, IN6ADDR_ANY)) or die "port $port: $!\n";
  listen($listener, 1);
  accept(my $client, $listener) or die "accept: $!\n";
  my ($bytes, $begin, $data) = (0, now());
  while (my $n = sysread($client, $data, 1048576)) { $bytes += $n }
  my $seconds = now() - $begin;
  printf "rate %d\n", $bytes * 8 / $seconds / 1e6 if $seconds > 0;
} else {
  my $socket;
  for (my $end = now() + 10;;) {
    socket($socket, $family, SOCK_STREAM, 0);
    last if connect($socket, $found->{addr});
    die "$receiver does not answer: $!\n" if now() > $end;
    select(undef, undef, undef, 0.1);
  }
  my $block = "\0" x 1048576;
  for (my $end = now() + $ENV{SECONDS_EACH}; now() < $end;) { defined syswrite($socket, $block) or die "send: $!\n" }
}
'
export SECONDS_EACH="${CHECK_SECONDS:-2}"
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
lowest=
sender=0
for receiver in $nodes; do
  address=$(scontrol -o show node "$receiver" | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')
  output=$(srun --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=1 perl -e "$program" "$sender" "$receiver" "$address" 2>&1)
  sender=$((sender + 1))
  rate=$(echo "$output" | sed -n 's/^rate //p')
  [ -n "$rate" ] || { echo "$(echo "$output" | grep -v '^srun: ' | grep -m 1 . || echo "no data arrived")"; exit 1; }
  [ -n "$lowest" ] && [ "$lowest" -le "$rate" ] || lowest=$rate
done
echo "measure bandwidth ${lowest}Mbit/s"
