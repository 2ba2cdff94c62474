# slurmstepd and the client commands refuse a plugin of another major or minor version of Slurm than their own.
folder=/opt/slurm-containers
mkdir -p "$folder"
compile() {
  output=$1
  shift
  gcc -std=c11 -O2 -fPIC -shared -Wall -Wextra -Werror -Wl,-z,relro,-z,now -fstack-protector-strong -D_FORTIFY_SOURCE=2 \
    -o "$folder/$output" "$@"
}
cd /mnt/image
compile slurm_containers.so slurm_containers.c
compile slurm_jail.so slurm_jail.c jail.c
compile pam_slurm_jail.so pam_slurm_jail.c jail.c -lpam
