#!/bin/sh
# nvidia-smi lists at least $GPUS GPUs, or MIG devices where $MIG is 1. More are no fault: a privileged slurmd sees all
# of its machine. A GPU that has fallen off the bus is listed with an error in place of its name, or not at all.
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
