/* The movers of CUDA or (-DSTAND_IN_HIP) HIP on the stand-in of the driver's library, which is
 * in crates/skt-device/tests/stand_in. Prints nothing unless something is wrong.
 * Argument: the case. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>
#include <skt.h>

/* SMALL is copied at once; LARGE is so large that all ways of copying are tried. */
enum { SMALL = 1000, LARGE = 5000000, FAILING_RANK = 1, LAUNCH_FAILED = 719 };

#ifdef STAND_IN_HIP
#define MOVER skt_mover_hip
#define LIBRARY "libamdhip64.so.6"
#else
#define MOVER skt_mover_cuda
#define LIBRARY "libcuda.so.1"
#endif

/* Of the stand-in. */
void stand_in_switch(void);
void *stand_in_stream(void);
uintptr_t stand_in_allocate(size_t bytes);
void stand_in_fail(unsigned long at, int code, int onwards);
const char *stand_in_failed(void);
void stand_in_forget(void);
void stand_in_read(void *host, uintptr_t device, size_t bytes);
void stand_in_write(uintptr_t device, const void *host, size_t bytes);
int stand_in_change(uintptr_t device, size_t bytes, unsigned char with, void *stream);
size_t stand_in_registrations(void);
size_t stand_in_left(int what);

static int rank;
static void *stream;
static uintptr_t memory;
static double *values;

static void check(int is_right, const char *what) {
    if (!is_right) {
        printf("%d wrong: %s: %s\n", rank, what, skt_message());
        fflush(stdout);
        MPI_Abort(MPI_COMM_WORLD, 4);
    }
}

static void must(int code) { check(code == SKT_SUCCESS, skt_error(code)); }

static double value(double seed, size_t i) { return seed + rank + 1e-3 * (double)i; }

static void fill(size_t count, double seed) {
    for (size_t i = 0; i < count; i++) values[i] = value(seed, i);
    stand_in_write(memory, values, count * sizeof *values);
}

static int has(size_t count, double seed) {
    stand_in_read(values, memory, count * sizeof *values);
    for (size_t i = 0; i < count; i++)
        if (values[i] != value(seed, i)) return 0;
    return 1;
}

static int is_nothing_left(void) {
    size_t left = 0;
    for (int what = 0; what < 4; what++) left += stand_in_left(what);
    return left == 0;
}

static void protect(size_t count) {
    skt_mover mover, again;
    must(MOVER(stream, &mover));
    must(MOVER(stream, &again));
    check(mover.context == again.context, "two movers of one stream");
    must(skt_protect_with(1, (void *)memory, count, sizeof *values, &mover));
}

static void begin(size_t count) {
    must(skt_init(MPI_COMM_WORLD, 8 * LARGE, NULL));
    protect(count);
}

static void restart(size_t count, double seed) {
    must(skt_finalize(0));
    check(is_nothing_left(), "a start leaves something");
    begin(count);
    fill(count, -1);
    must(skt_restore());
    check(has(count, seed), "what is restored has other bits");
}

/* Fails calls of the library on one rank: number `at`, or all from it on. */
static void fail(unsigned long at, int onwards) {
    if (rank == FAILING_RANK) stand_in_fail(at, LAUNCH_FAILED, onwards);
}

/* The call that has failed, on all ranks: no text for none. */
static const char *failed(void) {
    static char name[64];
    name[0] = 0;
    if (rank == FAILING_RANK && stand_in_failed() != NULL) strcpy(name, stand_in_failed());
    MPI_Bcast(name, sizeof name, MPI_CHAR, FAILING_RANK, MPI_COMM_WORLD);
    return name;
}

/* Fails nothing any more, on a device that is reset. */
static void repair(void) {
    stand_in_fail(0, 0, 0);
    stand_in_forget();
}

/* Whether a collective call has failed, with the cause in the message of every rank. */
static int has_failed(int code, const char *callback) {
    char cause[200];
    if (code == SKT_SUCCESS) return 0;
    check(code == SKT_ERR_DEVICE, "another code");
    snprintf(cause, sizeof cause,
             "rank 1: region 1: %s of bytes 0 to %d fails: %s of %s returns %d (", callback,
             8 * SMALL, failed(), LIBRARY, LAUNCH_FAILED);
    check(strstr(skt_message(), cause) != NULL, cause);
    return 1;
}

/* Checkpoints while kernels of the program are in the stream, and starts that continue. */
static void large(void) {
    begin(LARGE);
    for (int i = 0; i < 4; i++) {
        fill(LARGE, i);
        /* Back and forth: the two kernels together change nothing. */
        check(stand_in_change(memory, 8 * LARGE, 0x5A, stream) == 0, "a kernel");
        check(stand_in_change(memory, 8 * LARGE, 0x5A, stream) == 0, "a kernel");
        if (i % 2 == 0) {
            must(skt_checkpoint());
        } else {
            must(skt_checkpoint_begin());
            /* The device is free to continue. */
            fill(LARGE, -1);
            must(skt_checkpoint_wait());
        }
    }
    check(stand_in_registrations() > 0, "the memory for the regions is not pinned");
    restart(LARGE, 3);
    restart(LARGE, 3);
    must(skt_finalize(1));
    check(is_nothing_left(), "the end leaves something");
}

/* Each call fails once, from the making of the mover to the end of the start. What was saved last
 * is restored by the next start. */
static void each_call_fails(void) {
    int errors[3] = {0, 0, 0}, is_over = 0;
    double seed = 1;
    begin(SMALL);
    fill(SMALL, seed);
    must(skt_checkpoint());
    must(skt_finalize(0));
    for (unsigned long at = 1; !is_over; at++) {
        skt_mover mover;
        must(skt_init(MPI_COMM_WORLD, 8 * LARGE, NULL));
        fail(at, 0);
        int code = MOVER(stream, &mover);
        if (code != SKT_SUCCESS) {
            check(rank == FAILING_RANK && code == SKT_ERR_DEVICE, "another code");
            check(strstr(skt_message(), stand_in_failed()) != NULL, "the call is not named");
            errors[0]++;
        }
        protect(SMALL);
        fill(SMALL, -1);
        if (has_failed(skt_restore(), "from_host")) {
            errors[1]++;
            must(skt_restore());
        }
        check(has(SMALL, seed), "what is restored has other bits");
        fill(SMALL, seed + 1);
        if (!has_failed(skt_checkpoint(), "to_host")) {
            seed++;
        } else if (errors[2]++ % 2 == 0) {
            /* The run is usable. */
            must(skt_checkpoint());
            seed++;
        }
        must(skt_finalize(0));
        is_over = failed()[0] == 0;
        check(!is_over || is_nothing_left(), "a start leaves something");
        repair();
    }
    check(rank != FAILING_RANK || errors[0] > 2, "making a mover never fails");
    check(errors[1] > 3 && errors[2] > 3, "copies never fail");
    begin(SMALL);
    must(skt_restore());
    check(has(SMALL, seed), "what is restored has other bits");
    must(skt_finalize(1));
}

/* A device that is lost is an error each time, and the next start has the checkpoint before. */
static void lost(void) {
    for (unsigned long at = 1; at < 8; at++) {
        begin(SMALL);
        fill(SMALL, 1);
        must(skt_checkpoint());
        fill(SMALL, 2);
        fail(at, 1);
        int code = skt_checkpoint();
        /* It may be lost when all is copied. */
        double seed = code == SKT_SUCCESS ? 2 : 1;
        check(at > 1 || code == SKT_ERR_DEVICE, "no error");
        check(skt_checkpoint() == SKT_ERR_DEVICE, "no error of a lost device");
        check(skt_checkpoint_begin() == SKT_ERR_DEVICE, "no error of a lost device");
        must(skt_finalize(0));
        repair();
        begin(SMALL);
        must(skt_restore());
        check(has(SMALL, seed), "what is restored has other bits");
        must(skt_finalize(1));
    }
}

/* A mover of a start that has ended is an error. */
static void ended(void) {
    char byte;
    skt_mover mover;
    begin(SMALL);
    must(MOVER(stream, &mover));
    must(skt_checkpoint());
    must(skt_finalize(0));
    check(mover.to_host(mover.context, &byte, (void *)memory, 0, 1) != 0, "a copy");
    check(mover.from_host(mover.context, (void *)memory, &byte, 0, 1) != 0, "a copy");
    check(strstr(mover.error(mover.context, -1), "of a run that has ended") != NULL, "the text");
    must(skt_init(MPI_COMM_WORLD, 8 * LARGE, NULL));
    must(skt_protect_with(1, (void *)memory, SMALL, 8, &mover));
    check(skt_restore() == SKT_ERR_DEVICE, "no error");
    check(strstr(skt_message(), "of a run that has ended") != NULL, "the text");
    protect(SMALL);
    must(skt_restore());
    must(skt_finalize(1));
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"gpu-large", large},
        {"gpu-each-call-fails", each_call_fails},
        {"gpu-lost", lost},
        {"gpu-ended", ended},
    };
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
#ifndef STAND_IN_HIP
    stand_in_switch();
#endif
    values = malloc(LARGE * sizeof *values);
    stream = stand_in_stream();
    memory = stand_in_allocate(8 * LARGE);
    check(memory != 0, "no device");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (argc > 1 && strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run();
            free(values);
            return MPI_Finalize();
        }
    }
    check(0, "there is no such case");
}
