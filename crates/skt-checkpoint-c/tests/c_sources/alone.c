/* Each rank computes alone, at a pace of its own; the ranks meet in the calls of skt.h, where the
 * fast ones wait for the slow ones, and in the sum at the end. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <mpi.h>
#include <skt.h>

enum { NUMBERS = 10000, EVERY = 50, RESTART = 75 };
static double x[NUMBERS];

static void need(int code) {
    int lost = code == SKT_ERR_LOST || code == SKT_ERR_TIMEOUT;
    if (code == SKT_SUCCESS) return;
    fprintf(stderr, "alone: %s: %s\n", skt_error(code), skt_message());
    MPI_Abort(MPI_COMM_WORLD, lost ? RESTART : 2);
}

int main(int argc, char **argv) {
    long steps = argc > 1 ? atol(argv[1]) : 500, step = 0;
    MPI_Comm comm;
    int64_t found;
    int rank, size;
    MPI_Init(&argc, &argv);
    int code = skt_init(MPI_COMM_WORLD, sizeof x + sizeof step, "application = \"alone\"");
    if (code == SKT_ENDED) return MPI_Finalize();
    need(code);
    if (*skt_message()) fprintf(stderr, "alone: %s\n", skt_message());
    need(skt_comm(&comm));
    need(skt_protect(0, &step, 1, sizeof step));
    need(skt_protect(1, x, NUMBERS, sizeof *x));
    need(skt_found(&found));
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    if (found > 0) need(skt_restore());
    if (found > 0 && rank == 0) fprintf(stderr, "continues from step %ld\n", step);
    for (long from = step; step < steps; step++) {
        if (step % EVERY == 0 && step > from) {
            need(skt_checkpoint());
            if (rank == 0) fprintf(stderr, "checkpoint at step %ld\n", step);
        }
        for (int i = 0; i < NUMBERS; i++) x[i] = 0.75 * x[i] + (rank + 1) * (double)(i % 7);
        usleep(1000 * (useconds_t)((rank + step / EVERY) % size + 1));
    }
    double mine = 0, all = 0, *each = malloc((size_t)size * sizeof(double));
    for (int i = 0; i < NUMBERS; i++) mine += x[i] * x[i];
    MPI_Gather(&mine, 1, MPI_DOUBLE, each, 1, MPI_DOUBLE, 0, comm);
    for (int i = 0; rank == 0 && i < size; i++) all += each[i];
    if (rank == 0) printf("sum of squares %.17g\n", all);
    fflush(stdout);
    free(each);
    need(skt_finalize(1));
    return MPI_Finalize();
}
