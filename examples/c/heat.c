/* Heat in a plate, cut along its first dimension, that survives the loss of ranks: a program over
 * MPI as there are many, with the calls of skt.h in it. The plate is the program's own memory.
 *
 *     mpirun -np 4 heat 2000     kill -9 a rank: the same command continues
 *
 * The result has the same bits as without the kill. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>
#include <skt.h>

/* RESTART: the exit code of a job that is to be started again. */
enum { ROWS = 200, WIDTH = 512, EVERY = 50, RESTART = 75 };

/* Ends the job where a call has failed: to be started again where something was lost. */
static void need(int code) {
    int lost = code == SKT_ERR_LOST || code == SKT_ERR_TIMEOUT;
    if (code != SKT_SUCCESS) {
        fprintf(stderr, "heat: %s: %s\n", skt_error(code), skt_message());
        MPI_Abort(MPI_COMM_WORLD, lost ? RESTART : 2);
    }
}

/* Receives the neighbours' adjacent rows into the first and the last row of h. */
static void exchange(double (*h)[WIDTH], MPI_Comm comm, int rank, int size) {
    int up = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    int down = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
    MPI_Sendrecv(h[1], WIDTH, MPI_DOUBLE, up, 1, h[ROWS + 1], WIDTH, MPI_DOUBLE, down, 1, comm,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(h[ROWS], WIDTH, MPI_DOUBLE, down, 2, h[0], WIDTH, MPI_DOUBLE, up, 2, comm,
                 MPI_STATUS_IGNORE);
}

/* One step of Jacobi's iteration from h to g, both with a border. */
static void iterate(double (*g)[WIDTH], double (*h)[WIDTH]) {
    for (int i = 1; i <= ROWS; i++) {
        for (int j = 1; j < WIDTH - 1; j++) {
            g[i][j] = 0.25 * (h[i - 1][j] + h[i + 1][j] + h[i][j - 1] + h[i][j + 1]);
        }
    }
    for (int i = 1; i <= ROWS; i++) {
        memcpy(&h[i][1], &g[i][1], (WIDTH - 2) * sizeof(double));
    }
}

/* The sum over all ranks, in their order: the same bits whatever MPI's reduction does. */
static double sum(double (*h)[WIDTH], MPI_Comm comm, int rank, int size) {
    double mine = 0, all = 0, *each = malloc((size_t)size * sizeof(double));
    for (int i = 1; i <= ROWS; i++) {
        for (int j = 0; j < WIDTH; j++) mine += h[i][j] * h[i][j];
    }
    MPI_Gather(&mine, 1, MPI_DOUBLE, each, 1, MPI_DOUBLE, 0, comm);
    for (int i = 0; rank == 0 && i < size; i++) all += each[i];
    free(each);
    return all;
}

int main(int argc, char **argv) {
    long steps = argc > 1 ? atol(argv[1]) : 2000, step = 0;
    size_t plate = sizeof(double[ROWS + 2][WIDTH]);
    double (*h)[WIDTH] = calloc(1, plate), (*g)[WIDTH] = calloc(1, plate);
    MPI_Comm comm = MPI_COMM_WORLD;
    int64_t found = 0;
    int rank, size, due;

    MPI_Init(&argc, &argv);
    int code = skt_init(MPI_COMM_WORLD, plate + sizeof step, "application = \"heat 1\"");
    if (code == SKT_ENDED) return MPI_Finalize();
    need(code);
    need(skt_comm(&comm));
    need(skt_protect(0, &step, 1, sizeof step));
    need(skt_protect(1, h, ROWS + 2, sizeof *h));
    need(skt_found(&found));
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int j = 0; rank == 0 && j < WIDTH; j++) h[0][j] = 100;
    if (found > 0) need(skt_restore());
    if (found > 0 && rank == 0) fprintf(stderr, "continues from step %ld\n", step);

    for (long from = step; step < steps; step++) {
        if (step % EVERY == 0 && step > from) {
            need(skt_due(&due));
            need(skt_checkpoint());
            if (rank == 0) fprintf(stderr, "checkpoint at step %ld\n", step);
            if (due == SKT_DUE_LAST) {
                need(skt_finalize(0));
                if (rank == 0) fprintf(stderr, "stops at step %ld: no time is left\n", step);
                MPI_Finalize();
                return RESTART;
            }
        }
        exchange(h, comm, rank, size);
        iterate(g, h);
    }

    double heat = sum(h, comm, rank, size);
    if (rank == 0) printf("sum of squares %.17g\n", heat);
    fflush(stdout);
    need(skt_finalize(1));
    free(g);
    free(h);
    return MPI_Finalize();
}
