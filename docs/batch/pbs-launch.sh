#!/bin/bash
# `skt-hpl launch` in a PBS job: 8 nodes and one spare, 8 ranks of 8 threads on each. It continues
# by itself after the loss of a node; its ssh reaches the nodes without a password.
#
#   qsub pbs-launch.sh
#
#PBS -N hpl
#PBS -l select=9:ncpus=64:mpiprocs=8:ompthreads=8
#PBS -l place=scatter:excl
#PBS -l walltime=12:00:00
#PBS -j oe

cd "$PBS_O_WORKDIR" || exit 2
# Two such jobs at a time need a folder each, else one continues the other: set IMAGES.
images=${IMAGES:-$PBS_O_WORKDIR/images}
mkdir -p "$images"
# A configuration without checkpoints, which `plan` may choose, has no images: set LEVEL to nothing.
level=${LEVEL-global:$images}
# The run saves its state before this time, a minute before the job ends.
end=$(($(date +%s) + 12 * 3600 - 60))

skt-hpl launch --json launch.json -- --config cluster.toml ${level:+--level "$level"} \
    --time-limit "@$end" --json result.json
code=$?
if [ "$code" = 75 ]; then
    qsub pbs-launch.sh
fi
exit "$code"
