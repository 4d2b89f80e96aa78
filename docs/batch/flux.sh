#!/bin/bash
# skt-hpl in a Flux job: 8 nodes, 8 ranks of 8 threads on each. It starts again what is
# interrupted.
#
#   flux batch flux.sh
#
#flux: --job-name=hpl
#flux: --nodes=8
#flux: --exclusive
#flux: --time-limit=12h

images=${IMAGES:-$PWD/images}
mkdir -p "$images"

for _ in 1 2 3; do
    flux run --nodes=8 --ntasks=64 --cores-per-task=8 \
        skt-hpl --config cluster.toml --level "global:$images" --json result.json
    code=$?
    # 0: passed; 1: a residual failed; 2: bad input. All others: the same command goes on.
    case $code in 0 | 1 | 2) exit "$code" ;; esac
done
exit 75
