# Debian's settings confine Open MPI to the loopback interface, so that it can't reach other workers. Its own default is all others.
sed -i '/^btl_tcp_if_include *= *lo *$/d' /etc/openmpi/openmpi-mca-params.conf
! grep -q '^[a-z_]*if_include' /etc/openmpi/openmpi-mca-params.conf
