# slurmstepd and the client commands refuse a plugin of another major or minor version of Slurm than their own.
mkdir -p /opt/slurm-containers
gcc -std=c11 -O2 -fPIC -shared -Wall -Wextra -Werror -Wl,-z,relro,-z,now -fstack-protector-strong -D_FORTIFY_SOURCE=2 \
  -o /opt/slurm-containers/slurm_containers.so /mnt/image/slurm_containers.c
