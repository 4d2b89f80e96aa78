#!/bin/bash
# `skt-hpl launch` in a Slurm job: 8 nodes and one spare, 8 ranks of 8 threads on each. It
# continues by itself after the loss of a node.
# `skt-hpl status --state images/launch` shows how far the job is.
#
#   sbatch slurm-launch.sh
#
# Change here the nodes, the ranks and threads of a node (their product is its cores) and the time,
# and add your queue and account. Plan cluster.toml for the same numbers: job.sh has the command.
#
# The job outlives the loss of a node (--no-kill); the nodes that the grid does not need are
# the spares.
#SBATCH --job-name=hpl
#SBATCH --nodes=9
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --hint=nomultithread
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=12:00:00
#SBATCH --no-kill
#SBATCH --requeue
#SBATCH --open-mode=append

# shellcheck source=docs/batch/job.sh
. "$SLURM_SUBMIT_DIR/job.sh" || exit 2
# Slurm before 23.02 does not tell a job its end, but its queue does.
end=${SLURM_JOB_END_TIME:+@$SLURM_JOB_END_TIME}
end=${end:-$(SLURM_TIME_FORMAT=standard squeue -h -j "$SLURM_JOB_ID" -o %e)}
end=$(date -d "${end:-the end that squeue does not tell}" +%s) || exit 2

# The first host of a job that Slurm has queued again may be another one: the launcher there is gone.
once skt-hpl launch ${SLURM_RESTART_COUNT:+--head-lost} --state "$images/launch" \
    --no-spare "$no_spare" --json launch.json -- \
    --config "$config" ${level:+--level "$level"} --time-limit "@$end" --json result.json
queue_again scontrol requeue "$SLURM_JOB_ID"
