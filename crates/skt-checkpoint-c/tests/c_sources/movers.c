/* Right and wrong uses of skt_protect_with, on a device that the program plays itself: the addresses
 * of its memory cannot be accessed, and what they stand for lies elsewhere. Each rank prints a line
 * `CALL CODE TEXT` for each call that the test looks at, after its rank. Argument: the case. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <mpi.h>
#include <skt.h>

#include "say.h"

enum { COUNT = 100, LARGE = 5000000 };

/* A device, with one piece of memory. */
typedef struct device {
    const char *address;
    char *bytes;
    size_t size;
    int is_freed;
    /* Copies so far, and the one that fails; 0: none. From `lost` on all fail. */
    int copies, failing, lost;
    /* Whether a copy takes as long as this, and calls the library. */
    int slow_seconds, calls_library;
} device;

static void check(int is_right, const char *what) {
    if (!is_right) {
        printf("%d wrong: %s\n", rank, what);
        fflush(stdout);
        MPI_Abort(MPI_COMM_WORLD, 4);
    }
}

static device make(size_t count) {
    device made = {NULL, NULL, count * sizeof(double), 0, 0, 0, 0, 0, 0};
    made.address = mmap(NULL, made.size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    made.bytes = calloc(count, sizeof(double));
    check(made.address != MAP_FAILED && made.bytes != NULL, "no memory for the device");
    return made;
}

static int copy(device *of, const void *memory, size_t offset, size_t bytes) {
    of->copies++;
    check(memory == of->address, "the memory is another");
    check(bytes > 0 && offset + bytes <= of->size, "the copy is outside of the region");
    sleep((unsigned)of->slow_seconds);
    if (of->calls_library) SAY(skt_checkpoint());
    if (of->is_freed) return 3;
    if (of->lost && of->copies >= of->lost) return 9;
    return of->copies == of->failing ? 7 : 0;
}

static int to_host(void *context, void *host, const void *memory, size_t offset, size_t bytes) {
    device *of = context;
    int code = copy(of, memory, offset, bytes);
    if (code == 0) memcpy(host, of->bytes + offset, bytes);
    return code;
}

static int from_host(void *context, void *memory, const void *host, size_t offset, size_t bytes) {
    device *of = context;
    int code = copy(of, memory, offset, bytes);
    if (code == 0) memcpy(of->bytes + offset, host, bytes);
    return code;
}

static const char *explain(void *context, int code) {
    (void)context;
    return code == 3 ? "invalid pointer" : code == 9 ? "device lost" : "out of luck";
}

static skt_mover mover_of(device *of) {
    skt_mover mover = {to_host, from_host, explain, of};
    return mover;
}

static void *address(const device *of) { return (void *)of->address; }

static void fill(device *of, double seed) {
    double *values = (double *)(void *)of->bytes;
    for (size_t i = 0; i < of->size / sizeof *values; i++) values[i] = seed + rank + 1e-3 * (double)i;
}

static int has(const device *of, double seed) {
    const double *values = (const double *)(const void *)of->bytes;
    for (size_t i = 0; i < of->size / sizeof *values; i++) {
        if (values[i] != seed + rank + 1e-3 * (double)i) return 0;
    }
    return 1;
}

/* Opens the run with region 1 on a device of `count` numbers. */
static void begin(device *of, size_t count) {
    *of = make(count);
    must(skt_init(MPI_COMM_WORLD, 8 * LARGE, NULL));
    skt_mover mover = mover_of(of);
    must(skt_protect_with(1, address(of), count, 8, &mover));
    memset(&mover, 0, sizeof mover); /* It has been copied. */
}

/* Ends the start and begins the next, whose device has `seed` after the restore. */
static void restart(device *of, double seed) {
    size_t count = of->size / 8;
    must(skt_finalize(0));
    begin(of, count);
    must(skt_restore());
    check(has(of, seed), "what is restored has other bits");
}

static void arguments(void) {
    device of;
    begin(&of, COUNT);
    skt_mover mover = mover_of(&of), no_to = mover, no_from = mover;
    no_to.to_host = NULL;
    no_from.from_host = NULL;
    SAY(skt_protect_with(2, address(&of), COUNT, 8, NULL));
    SAY(skt_protect_with(2, address(&of), COUNT, 8, &no_to));
    SAY(skt_protect_with(2, address(&of), COUNT, 8, &no_from));
    SAY(skt_protect_with(2, NULL, COUNT, 8, &mover));
    SAY(skt_protect_with(2, address(&of), 0, 8, &mover));
    SAY(skt_protect_with(2, address(&of), (size_t)-1, 8, &mover));
    SAY(skt_checkpoint());
    munmap(address(&of), of.size);
    SAY(skt_protect(2, address(&of), COUNT, 8));
    SAY(skt_checkpoint());
    must(skt_checkpoint());
    must(skt_finalize(1));
    SAY(skt_protect_with(2, address(&of), COUNT, 8, &mover));
}

static void fails_in_checkpoint(void) {
    device of;
    begin(&of, LARGE);
    fill(&of, 10);
    must(skt_checkpoint());
    int pieces = of.copies;
    check(pieces > 1, "a large region is copied at once");
    fill(&of, 20);
    if (rank == 2) of.failing = 2 * pieces; /* The last piece of the second checkpoint. */
    SAY(skt_checkpoint());
    restart(&of, 10);
    /* The run is usable. */
    fill(&of, 30);
    if (rank == 0) of.failing = of.copies + 1;
    SAY(skt_checkpoint());
    must(skt_checkpoint());
    restart(&of, 30);
    must(skt_finalize(1));
}

static void fails_in_begin(void) {
    int done;
    device of;
    begin(&of, COUNT);
    fill(&of, 10);
    must(skt_checkpoint());
    if (rank == 1) of.failing = of.copies + 1;
    SAY(skt_checkpoint_begin());
    SAY(skt_checkpoint_test(&done));
    SAY(skt_checkpoint_wait());
    restart(&of, 10);
    fill(&of, 20);
    must(skt_checkpoint_begin());
    must(skt_checkpoint_wait());
    restart(&of, 20);
    must(skt_finalize(1));
}

/* Callbacks are not called in test and wait: the region may be freed after begin. */
static void freed_before_wait(void) {
    int done = 0;
    device of;
    begin(&of, COUNT);
    fill(&of, 10);
    must(skt_checkpoint_begin());
    int copies = of.copies;
    of.is_freed = 1;
    for (int i = 0; i < 1000 && !done; i++) must(skt_checkpoint_test(&done));
    must(skt_checkpoint_wait());
    check(of.copies == copies, "a callback was called after begin");
    SAY(skt_checkpoint());
    must(skt_unprotect(1));
    must(skt_finalize(0));
    begin(&of, COUNT);
    must(skt_restore());
    check(has(&of, 10), "what is restored has other bits");
    must(skt_finalize(1));
}

static void fails_in_restore(void) {
    device of;
    begin(&of, COUNT);
    fill(&of, 10);
    must(skt_checkpoint());
    must(skt_finalize(0));
    begin(&of, COUNT);
    if (rank == 0) of.failing = 1;
    SAY(skt_restore());
    SAY(skt_checkpoint());
    must(skt_restore());
    check(has(&of, 10), "what is restored has other bits");
    must(skt_finalize(1));
}

static void lost_device(void) {
    device of;
    begin(&of, COUNT);
    fill(&of, 10);
    must(skt_checkpoint());
    if (rank == 1) of.lost = of.copies + 1;
    SAY(skt_checkpoint());
    SAY(skt_checkpoint_begin());
    restart(&of, 10);
    must(skt_finalize(1));
}

static void no_text(void) {
    device of;
    begin(&of, COUNT);
    skt_mover mover = mover_of(&of);
    mover.error = NULL;
    must(skt_protect_with(1, address(&of), COUNT, 8, &mover));
    if (rank == 1) of.failing = 1;
    SAY(skt_checkpoint());
    must(skt_finalize(1));
}

static const char *clear_screen(void *context, int code) {
    (void)context;
    (void)code;
    return "\x1b[2Jcleared";
}

static void escapes(void) {
    device of;
    begin(&of, COUNT);
    skt_mover mover = mover_of(&of);
    mover.error = clear_screen;
    must(skt_protect_with(1, address(&of), COUNT, 8, &mover));
    if (rank == 1) of.failing = 1;
    SAY(skt_checkpoint());
    must(skt_finalize(1));
}

static void other_size(void) {
    device of, other = make(COUNT + 1);
    begin(&of, COUNT);
    fill(&of, 10);
    must(skt_checkpoint());
    must(skt_finalize(0));
    begin(&of, COUNT);
    skt_mover mover = mover_of(&other);
    if (rank == 1) must(skt_protect_with(1, address(&other), COUNT + 1, 8, &mover));
    SAY(skt_restore());
    mover = mover_of(&of);
    if (rank == 1) must(skt_protect_with(1, address(&of), COUNT, 8, &mover));
    must(skt_restore());
    check(has(&of, 10), "what is restored has other bits");
    must(skt_finalize(1));
}

/* What a device had continues in memory of the host, and the other way round. */
static void moves_to_the_host(void) {
    device of;
    begin(&of, COUNT);
    fill(&of, 10);
    must(skt_checkpoint());
    must(skt_finalize(0));
    must(skt_init(MPI_COMM_WORLD, 8 * LARGE, NULL));
    must(skt_protect(1, of.bytes, COUNT, 8));
    memset(of.bytes, 0, of.size);
    must(skt_restore());
    check(has(&of, 10), "what is restored has other bits");
    must(skt_checkpoint());
    restart(&of, 10);
    must(skt_finalize(1));
}

/* One rank alone has a device, and it is slower than the time limit of a call. */
static void one_rank(void) {
    device of = make(COUNT);
    double mine = rank;
    skt_mover mover = mover_of(&of);
    must(skt_init(MPI_COMM_WORLD, 8 * LARGE, "timeout_seconds = 1"));
    must(skt_protect(2, &mine, 1, 8));
    if (rank == 1) must(skt_protect_with(1, address(&of), COUNT, 8, &mover));
    fill(&of, 10);
    of.slow_seconds = 3;
    must(skt_checkpoint());
    must(skt_finalize(0));
    of.slow_seconds = 0;
    must(skt_init(MPI_COMM_WORLD, 8 * LARGE, "timeout_seconds = 1"));
    must(skt_protect(2, &mine, 1, 8));
    if (rank == 1) must(skt_protect_with(1, address(&of), COUNT, 8, &mover));
    mine = -1;
    fill(&of, 0);
    must(skt_restore());
    check(mine == rank && has(&of, rank == 1 ? 10 : 0), "what is restored has other bits");
    if (rank == 1) of.failing = of.copies + 1;
    SAY(skt_checkpoint());
    must(skt_checkpoint());
    must(skt_finalize(1));
}

static void calls_back(void) {
    device of;
    begin(&of, COUNT);
    of.calls_library = 1;
    SAY(skt_checkpoint());
    must(skt_finalize(1));
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"arguments", arguments},
        {"fails-in-checkpoint", fails_in_checkpoint},
        {"fails-in-begin", fails_in_begin},
        {"freed-before-wait", freed_before_wait},
        {"fails-in-restore", fails_in_restore},
        {"lost-device", lost_device},
        {"no-text", no_text},
        {"escapes", escapes},
        {"other-size", other_size},
        {"moves-to-the-host", moves_to_the_host},
        {"one-rank", one_rank},
        {"calls-back", calls_back},
    };
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (argc > 1 && strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run();
            return MPI_Finalize();
        }
    }
    check(0, "there is no such case");
}
