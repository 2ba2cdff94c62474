# slurmstepd and the client commands refuse a plugin of another major or minor version of Slurm than their own.
mkdir -p /opt/slurm-containers
for name in slurm_containers slurm_jail; do
  gcc -std=c11 -O2 -fPIC -shared -Wall -Wextra -Werror -Wl,-z,relro,-z,now -fstack-protector-strong -D_FORTIFY_SOURCE=2 \
    -o "/opt/slurm-containers/$name.so" "/mnt/image/$name.c"
done
