#!/bin/bash
# `skt-hpl launch` in a Flux job: 8 nodes and one spare, 8 ranks of 8 threads on each. It continues
# by itself after the loss of a node; its ssh reaches the nodes without a password.
#
#   flux batch flux-launch.sh
#
#flux: --job-name=hpl
#flux: --nodes=9
#flux: --exclusive
#flux: --time-limit=12h

# Two such jobs at a time need a folder each, else one continues the other: set IMAGES.
images=${IMAGES:-$PWD/images}
mkdir -p "$images"
# A configuration without checkpoints, which `plan` may choose, has no images: set LEVEL to nothing.
level=${LEVEL-global:$images}
# The run saves its state before this time, a minute before the job ends.
end=$(($(date +%s) + 12 * 3600 - 60))
flux hostlist --expand --delimiter='\n' local | sed 's/$/ slots=8/' > hosts

exec skt-hpl launch --hosts hosts --json launch.json --launcher-template \
    'flux run --nodes={nodes} --ntasks={ranks} --cores-per-task=8 --requires=hosts:{hosts} {command}' \
    -- --config cluster.toml ${level:+--level "$level"} \
        --time-limit "@$end" --json result.json
