/* The Himeno benchmark (R. Himeno, RIKEN) that survives the loss of ranks, written anew from its
 * method: Jacobi's iteration for the pressure of Poisson's equation in generalized coordinates, a
 * stencil of 19 points with a coefficient for each term, in single precision. The grid of
 * SIZE x SIZE x 2 SIZE points is cut along its first dimension.
 *
 *     mpirun -np 4 himeno 200 32     kill -9 a rank: the same command continues
 *
 * A checkpoint is begun in one iteration and completed some iterations later: the pressure is the
 * program's own memory, which is copied at the beginning. The result has the same bits as without
 * the kill. */
#include <stdio.h>
#include <stdlib.h>

#include <mpi.h>
#include <skt.h>

/* RESTART: the exit code of a job that is to be started again. */
enum { EVERY = 20, OVERLAP = 4, RESTART = 75 };

static const float omega = 0.8f;
static int rank, ranks, lines, width;
/* Planes of this rank, and the first one of them in the grid; each array has one more on each side. */
static int planes, first;
static float *p, *change;
static float *a[4], *b[3], *c[3], *source, *inside;

/* Ends the job where a call has failed: to be started again where something was lost. */
static void need(int code) {
    int lost = code == SKT_ERR_LOST || code == SKT_ERR_TIMEOUT;
    if (code != SKT_SUCCESS) {
        fprintf(stderr, "himeno: %s: %s\n", skt_error(code), skt_message());
        MPI_Abort(MPI_COMM_WORLD, lost ? RESTART : 2);
    }
}

static size_t points(int n) { return (size_t)n * (size_t)lines * (size_t)width; }

static float *array(float value) {
    float *all = malloc(points(planes + 2) * sizeof *all);
    if (all == NULL) MPI_Abort(MPI_COMM_WORLD, 2);
    for (size_t at = 0; at < points(planes + 2); at++) all[at] = value;
    return all;
}

/* Coefficients of the benchmark, and p = (i / (I - 1))^2 in plane i, also on the boundary. */
static void fill(void) {
    for (int n = 0; n < 3; n++) {
        a[n] = array(1);
        b[n] = array(0);
        c[n] = array(1);
    }
    a[3] = array(1.0f / 6);
    source = array(0);
    inside = array(1);
    p = array(0);
    change = array(0);
    for (int i = 0; i < planes + 2; i++) {
        float x = (float)(first - 1 + i) / (float)(lines - 1);
        for (size_t at = points(i); at < points(i + 1); at++) p[at] = x * x;
    }
}

/* Receives the neighbours' adjacent planes. */
static void exchange(MPI_Comm comm) {
    int up = rank > 0 ? rank - 1 : MPI_PROC_NULL, down = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    int plane = (int)points(1);
    MPI_Sendrecv(p + points(1), plane, MPI_FLOAT, up, 1, p + points(planes + 1), plane, MPI_FLOAT,
                 down, 1, comm, MPI_STATUS_IGNORE);
    MPI_Sendrecv(p + points(planes), plane, MPI_FLOAT, down, 2, p, plane, MPI_FLOAT, up, 2, comm,
                 MPI_STATUS_IGNORE);
}

/* The change that the equation requires at a point. */
static float required(size_t at) {
    size_t i = points(1), j = (size_t)width, k = 1;
    float sum = a[0][at] * p[at + i] + a[1][at] * p[at + j] + a[2][at] * p[at + k] +
                b[0][at] * (p[at + i + j] - p[at + i - j] - p[at - i + j] + p[at - i - j]) +
                b[1][at] * (p[at + j + k] - p[at - j + k] - p[at + j - k] + p[at - j - k]) +
                b[2][at] * (p[at + i + k] - p[at - i + k] - p[at + i - k] + p[at - i - k]) +
                c[0][at] * p[at - i] + c[1][at] * p[at - j] + c[2][at] * p[at - k] + source[at];
    return (sum * a[3][at] - p[at]) * inside[at];
}

/* One iteration. Returns the sum of the squares of this rank's changes. */
static double iterate(MPI_Comm comm) {
    double sum = 0;
    exchange(comm);
    for (int i = 1; i <= planes; i++) {
        for (int j = 1; j < lines - 1; j++) {
            size_t line = points(i) + (size_t)j * (size_t)width;
            for (size_t at = line + 1; at < line + (size_t)width - 1; at++) change[at] = required(at);
        }
    }
    for (int i = 1; i <= planes; i++) {
        for (int j = 1; j < lines - 1; j++) {
            size_t line = points(i) + (size_t)j * (size_t)width;
            for (size_t at = line + 1; at < line + (size_t)width - 1; at++) {
                p[at] += omega * change[at];
                sum += (double)(change[at] * change[at]);
            }
        }
    }
    return sum;
}

/* The sum over all ranks, in their order. */
static double sum_of(double mine, MPI_Comm comm) {
    double all = 0, *each = malloc((size_t)ranks * sizeof *each);
    MPI_Gather(&mine, 1, MPI_DOUBLE, each, 1, MPI_DOUBLE, 0, comm);
    for (int i = 0; rank == 0 && i < ranks; i++) all += each[i];
    free(each);
    return all;
}

/* Takes a checkpoint each EVERY iterations, over OVERLAP of them. `begun` is the step at which one
 * was begun that is not complete; 0: none. */
static void save(long step, long *begun) {
    int done;
    if (*begun > 0 && step == *begun + OVERLAP) {
        need(skt_checkpoint_wait());
        if (rank == 0) fprintf(stderr, "checkpoint at step %ld\n", *begun);
        *begun = 0;
    } else if (*begun > 0) {
        need(skt_checkpoint_test(&done));
    } else if (step > 0 && step % EVERY == 0) {
        need(skt_checkpoint_begin());
        *begun = step;
    }
}

int main(int argc, char **argv) {
    long steps = argc > 1 ? atol(argv[1]) : 200, step = 0, begun = 0;
    MPI_Comm comm = MPI_COMM_WORLD;
    int64_t found = 0;
    double gosa = 0;

    lines = argc > 2 ? atoi(argv[2]) : 32;
    width = 2 * lines;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(comm, &ranks);
    planes = (lines - 2 + ranks - 1) / ranks + 2; /* the most of any rank, with its neighbours' */
    char problem[64];
    snprintf(problem, sizeof problem, "application = \"himeno %d\"", lines);
    int code = skt_init(comm, points(planes) * sizeof *p + sizeof step + sizeof gosa, problem);
    if (code == SKT_ENDED) return MPI_Finalize();
    need(code);
    need(skt_comm(&comm));
    MPI_Comm_rank(comm, &rank);
    planes = (lines - 2) / ranks + (rank < (lines - 2) % ranks);
    first = 1 + rank * ((lines - 2) / ranks) + (rank < (lines - 2) % ranks ? rank : (lines - 2) % ranks);
    fill();
    need(skt_protect(0, &step, 1, sizeof step));
    need(skt_protect(1, &gosa, 1, sizeof gosa));
    need(skt_protect(2, p, points(planes + 2), sizeof *p));
    need(skt_found(&found));
    if (found > 0) need(skt_restore());
    if (found > 0 && rank == 0) fprintf(stderr, "continues from step %ld\n", step);

    for (; step < steps; step++) {
        save(step, &begun);
        gosa = iterate(comm);
    }
    if (begun > 0) need(skt_checkpoint_wait());

    double mine = 0;
    for (size_t at = points(1); at < points(planes + 1); at++) mine += (double)p[at] * (double)p[at];
    double squares = sum_of(mine, comm), changes = sum_of(gosa, comm);
    if (rank == 0) printf("sum of squares %.17g, gosa %.9g\n", squares, changes);
    fflush(stdout);
    need(skt_finalize(1));
    float *all[] = {a[0], a[1], a[2], a[3], b[0], b[1], b[2], c[0], c[1], c[2], source, inside, p, change};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) free(all[n]);
    return MPI_Finalize();
}
