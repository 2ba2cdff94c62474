#!/bin/sh
# Sends data by TCP between two nodes for CHECK_SECONDS, in both directions one after the other. Measures bandwidth, the lower one.
# The steps run a program of the standard Perl. Others can reach its ports, and may listen on one of them: the sender shows the first
# half of a random token, and the receiver the second one. It is new in each direction, and in the environment alone.
command -v perl >/dev/null || { echo "perl is not installed on the node"; exit 77; }
# shellcheck disable=SC2016  # Perl has the variables.
program='
use strict; use warnings; use Socket qw(:DEFAULT getaddrinfo pack_sockaddr_in6 IN6ADDR_ANY);
sub now { open my $file, "<", "/proc/uptime" or die "/proc/uptime: $!\n"; return (split " ", <$file>)[0] }
sub readable { my ($seconds, @found) = @_; my $bits = ""; vec($bits, fileno($_), 1) = 1 for @found; select($bits, undef, undef, $seconds); return grep { vec($bits, fileno($_), 1) } @found }
my ($sender, $receiver, $address) = @ARGV;
my ($hello, $answer) = $ENV{CHECK_TOKEN} =~ /^([0-9a-f]{32})([0-9a-f]{32})$/ or die "no token\n";
my $first = 20000 + $ENV{SLURM_JOB_ID} % 500 * 20 + $sender * 10;
my @ports = ($first .. $first + 9);
$SIG{PIPE} = "IGNORE";
alarm(20 + $ENV{SECONDS_EACH});
my ($error, $found) = getaddrinfo($address, $first, {socktype => SOCK_STREAM});
die "$receiver has no address\n" if $error || !$found;
my $family = $found->{family};
my $packed = $family == AF_INET ? (unpack_sockaddr_in($found->{addr}))[1] : (Socket::unpack_sockaddr_in6($found->{addr}))[1];
sub at { my ($port, $host) = @_; return $family == AF_INET ? pack_sockaddr_in($port, $host) : pack_sockaddr_in6($port, $host) }
if ($ENV{SLURMD_NODENAME} eq $receiver) {
  socket(my $listener, $family, SOCK_STREAM, 0) or die "socket: $!\n";
  setsockopt($listener, SOL_SOCKET, SO_REUSEADDR, 1);
  my $any = $family == AF_INET ? INADDR_ANY : IN6ADDR_ANY;
  my $bound;
  for my $port (@ports) { last if $bound = bind($listener, at($port, $any)) }
  die "ports $ports[0] to $ports[-1]: $!\n" unless $bound && listen($listener, 64);
  my ($client, %said);
  until ($client) {
    for my $ready (readable(undef, $listener, map { $_->[0] } values %said)) {
      if ($ready == $listener) {
        # Many who say nothing must not keep the sender out: one of them is dropped.
        delete $said{(keys %said)[0]} if keys %said >= 64;
        my $new;
        $said{fileno($new)} = [$new, ""] if accept($new, $listener);
        next;
      }
      my $entry = $said{fileno($ready)} or next;
      my $n = sysread($ready, $entry->[1], 32 - length $entry->[1], length $entry->[1]);
      next if $n && length $entry->[1] < 32;
      delete $said{fileno($ready)};
      $client = $ready if $n && $entry->[1] eq $hello;
    }
  }
  close $listener; %said = ();
  syswrite($client, $answer);
  my ($bytes, $begin, $data) = (0, now());
  while (my $n = sysread($client, $data, 1048576)) { $bytes += $n }
  my $seconds = now() - $begin;
  printf "rate %d\n", $bytes * 8 / $seconds / 1e6 if $seconds > 0;
} else {
  my ($socket, $end, $why) = (undef, now() + 10, "");
  TRY: while (1) {
    for my $port (@ports) {
      socket($socket, $family, SOCK_STREAM, 0);
      connect($socket, at($port, $packed)) or do { $why ||= "$!"; next };
      syswrite($socket, $hello);
      my $text = "";
      while (length $text < 32 && readable(2, $socket)) { sysread($socket, $text, 32 - length $text, length $text) or last }
      last TRY if $text eq $answer;
      $why = "another program answers on port $port";
    }
    die "$receiver does not answer: $why\n" if now() > $end;
    select(undef, undef, undef, 0.1);
  }
  my $block = "\0" x 1048576;
  for ($end = now() + $ENV{SECONDS_EACH}; now() < $end;) { defined syswrite($socket, $block) or die "send: $!\n" }
}
'
export SECONDS_EACH="${CHECK_SECONDS:-2}"
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
lowest=
sender=0
for receiver in $nodes; do
  CHECK_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -dc 0-9a-f)
  export CHECK_TOKEN
  address=$(scontrol -o show node "$receiver" | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')
  output=$(srun --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=1 perl -e "$program" "$sender" "$receiver" "$address" 2>&1)
  sender=$((sender + 1))
  rate=$(echo "$output" | sed -n 's/^rate //p')
  [ -n "$rate" ] || { echo "$(echo "$output" | grep -v '^srun: ' | grep -m 1 . || echo "no data arrived")"; exit 1; }
  [ -n "$lowest" ] && [ "$lowest" -le "$rate" ] || lowest=$rate
done
echo "measure bandwidth ${lowest}Mbit/s"
