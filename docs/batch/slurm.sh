#!/bin/bash
# skt-hpl in a Slurm job: 8 nodes, 8 ranks of 8 threads on each. An interrupted run
# is started again. The run saves its state before the end of the job, which is then queued again.
#
#   sbatch slurm.sh
#
# Change here the nodes, the ranks and threads of a node (their product is its cores) and the time,
# and add your queue and account. Plan cluster.toml for the same numbers: job.sh has the command.
#
#SBATCH --job-name=hpl
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --hint=nomultithread
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=12:00:00
#SBATCH --requeue
#SBATCH --open-mode=append

# shellcheck source=docs/batch/job.sh
. "$SLURM_SUBMIT_DIR/job.sh" || exit 2
# Slurm before 23.02 does not tell a job its end, but its queue does.
end=${SLURM_JOB_END_TIME:+@$SLURM_JOB_END_TIME}
end=${end:-$(SLURM_TIME_FORMAT=standard squeue -h -j "$SLURM_JOB_ID" -o %e)}
end=$(date -d "${end:-the end that squeue does not tell}" +%s) || exit 2

repeat srun --cpus-per-task="$SLURM_CPUS_PER_TASK" --kill-on-bad-exit=1 \
    skt-hpl --config "$config" ${level:+--level "$level"} --time-limit "@$end" --json result.json
queue_again scontrol requeue "$SLURM_JOB_ID"
