#!/bin/sh
# nvidia-smi lists at least $GPUS GPUs, or MIG devices if $MIG is 1. More are not a fault, because a privileged slurmd sees
# all GPUs of its host. A GPU that has fallen off the bus is listed with an error instead of its name, or is missing.
answer=$SLURM_HEALTH_STATE/nvidia-smi
test -e "$answer" || exit 0
line='^GPU [0-9]*: .*(UUID: GPU-' kind=GPUs
if test "${MIG:-0}" = 1; then
  line='^  *MIG .*(UUID: MIG-' kind='MIG devices'
fi
found=$(grep -c "$line" "$answer")
if test "$found" -lt "$GPUS"; then
  echo "$found of $GPUS $kind"
  exit 1
fi
