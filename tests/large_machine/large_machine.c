/* A small machine that feels like a large one, or like one with a fault: preloaded into the ranks
 * of a job, this library gives the BLAS, the disk and the end of a process the times of a large
 * node, slows the BLAS of a rank, or makes it compute wrong.
 *
 *   SKT_LARGE_GFLOPS=R          the BLAS of a thread computes at most R * 10^9 operations a second
 *   SKT_LARGE_ALL_GFLOPS=R      the same in all ranks at all times, where the above says no other
 *   SKT_LARGE_SYNC_SECONDS=S    fsync, fdatasync: S seconds more
 *   SKT_LARGE_SEND_SECONDS=S    MPI_Send, which substitutions wait for: S seconds more
 *   SKT_LARGE_WRITE_RATE=R      write, pwrite to a file: at most R bytes a second
 *   SKT_LARGE_LINGER_SECONDS=S  memory and locks of a rank stay S seconds when it is dead
 *   SKT_LARGE_TIMES=F           each call of the BLAS takes F times as long, with the core at work
 *   SKT_LARGE_STOP=1            a rank stops (SIGSTOP) at a call of the BLAS
 *   SKT_LARGE_FLIP=N            about every N-th product of this rank has one wrong number
 *   SKT_LARGE_FLIP_GFLOP=G      about one number is wrong for each G * 10^9 operations of products
 *   SKT_LARGE_SEED=S            which numbers these are
 *   SKT_LARGE_LOG=PATH          a line for each wrong number is added to this file
 *   SKT_LARGE_RANK=R            only rank R of the job
 *   SKT_LARGE_HOST=NAME         only ranks on the host of this name
 *   SKT_LARGE_FROM=PATH         only from when a file is there
 *   SKT_LARGE_AFTER_GFLOP=G     only after a thread has done G * 10^9 operations in the BLAS
 *   SKT_LARGE_PLANTED=FOLDER    a rank that is meant leaves a file HOST.RANK in this folder
 *
 * Processes that are no ranks (launchers, a supervisor, the trial of a BLAS) are left alone.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double gflops, all_gflops, send_seconds, sync_seconds, write_rate, linger_seconds, times;
static double after_operations;
static double flip_operations;
static uint64_t flip_every, flip_seed;
static int stops;
static const char *from_path, *log_path;
static int is_meant;
/* The operations of this thread in the BLAS. */
static _Thread_local double done_operations;

extern char **environ;

static double number(const char *name) {
    const char *text = getenv(name);
    return text ? atof(text) : 0.0;
}

/* Whether this is the process in which a rank tries its BLAS, with the rank's variables. */
static int is_trial(void) {
    char words[4096] = "";
    int file = open("/proc/self/cmdline", O_RDONLY);
    ssize_t bytes = read(file, words, sizeof words - 1);
    close(file);
    for (char *word = words; word < words + bytes; word += strlen(word) + 1)
        if (strcmp(word, "blas-trial") == 0) return 1;
    return 0;
}

__attribute__((constructor)) static void begin(void) {
    if (is_trial()) return;
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (!rank) rank = getenv("PMI_RANK");
    if (!rank) rank = getenv("SLURM_PROCID");
    const char *only = getenv("SKT_LARGE_RANK");
    const char *only_host = getenv("SKT_LARGE_HOST");
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    is_meant = rank && (!only || atoi(only) == atoi(rank)) &&
               (!only_host || strcmp(only_host, host) == 0);
    const char *planted = getenv("SKT_LARGE_PLANTED");
    if (is_meant && planted) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s.%s", planted, host, rank);
        close(open(path, O_CREAT | O_WRONLY, 0600));
    }
    from_path = getenv("SKT_LARGE_FROM");
    gflops = number("SKT_LARGE_GFLOPS");
    all_gflops = rank ? number("SKT_LARGE_ALL_GFLOPS") : 0.0;
    send_seconds = number("SKT_LARGE_SEND_SECONDS");
    sync_seconds = number("SKT_LARGE_SYNC_SECONDS");
    write_rate = number("SKT_LARGE_WRITE_RATE");
    linger_seconds = number("SKT_LARGE_LINGER_SECONDS");
    times = number("SKT_LARGE_TIMES");
    after_operations = 1e9 * number("SKT_LARGE_AFTER_GFLOP");
    flip_every = (uint64_t)number("SKT_LARGE_FLIP");
    flip_operations = 1e9 * number("SKT_LARGE_FLIP_GFLOP");
    flip_seed = (uint64_t)number("SKT_LARGE_SEED");
    log_path = getenv("SKT_LARGE_LOG");
    stops = getenv("SKT_LARGE_STOP") != NULL;
}

static int is_now(void) {
    return is_meant && done_operations >= after_operations &&
           (!from_path || access(from_path, F_OK) == 0);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

static void rest(double seconds) {
    struct timespec left = {(time_t)seconds, (long)(1e9 * (seconds - (time_t)seconds))};
    while (seconds > 0 && nanosleep(&left, &left) != 0) {}
}

/* The memory of a large process is given back long after its death, and what it has locked or
 * attached is so until then. A process cannot stop its own kill; so a copy of it, which nobody
 * finds by its environment, holds memory and locks, and follows it later. */
static void stay_behind(void) {
    static atomic_flag is_done = ATOMIC_FLAG_INIT;
    if (linger_seconds <= 0 || !is_now() || atomic_flag_test_and_set(&is_done)) return;
    pid_t rank = getpid();
    /* Without the handlers of libraries for a fork. */
    if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) != 0) return;
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_NAME, "large-machine");
    setsid();
    for (char **entry = environ; *entry; entry++) memset(*entry, 0, strlen(*entry));
    /* Pipes and connections would keep the launcher from seeing the death. */
    for (int fd = 0; fd < 4096; fd++) {
        struct stat status;
        if (fstat(fd, &status) == 0 && !S_ISREG(status.st_mode)) close(fd);
    }
    while (getppid() == rank) rest(0.005);
    rest(linger_seconds);
    _exit(0);
}

/* A call of so many operations has begun then. */
static void compute(double operations, double begun) {
    stay_behind();
    done_operations += operations;
    if (stops && is_now()) raise(SIGSTOP);
    if (times > 1 && is_now()) {
        double end = begun + times * (now() - begun);
        while (now() < end) {}
    }
    double most = gflops > 0 && is_now() ? gflops : all_gflops;
    if (most <= 0) return;
    /* Short calls are paid for together. */
    static _Thread_local double debt;
    debt += operations / (1e9 * most) - (now() - begun);
    if (debt > 1e-3) {
        rest(debt);
        debt = 0;
    } else if (debt < 0) {
        debt = 0;
    }
}

/* SplitMix64. */
static uint64_t dice(void) {
    static atomic_uint_fast64_t state;
    uint64_t z = atomic_fetch_add(&state, 0x9e3779b97f4a7c15) + flip_seed * 0xda942042e4dd58b5;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

/* Flips one of the high bits of one number of a product, as a core or a memory cell may do. Bit 62
 * is left alone: it would make infinities of most numbers. */
static void flip(double *c, int m, int n, int k, int ldc) {
    if ((!flip_every && flip_operations <= 0) || !is_now() || m < 1 || n < 1) return;
    if (flip_every && dice() % flip_every != 0) return;
    if (flip_operations > 0 && dice() * 0x1p-64 * flip_operations > 2.0 * m * n * k) return;
    int i = dice() % m, j = dice() % n, bit = 44 + dice() % 18;
    uint64_t *word = (uint64_t *)(c + i + (size_t)j * ldc);
    *word ^= 1ull << bit;
    if (!log_path) return;
    char line[128];
    int bytes = snprintf(line, sizeof line, "pid %d: bit %d of (%d, %d) of %d x %d\n", (int)getpid(),
                         bit, i, j, m, n);
    int fd = open(log_path, O_CREAT | O_WRONLY | O_APPEND, 0600);
    if (fd >= 0) {
        syscall(SYS_write, fd, line, bytes);
        close(fd);
    }
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

void dgemm_(const char *ta, const char *tb, const int *m, const int *n, const int *k,
            const double *alpha, const double *a, const int *lda, const double *b, const int *ldb,
            const double *beta, double *c, const int *ldc, size_t la, size_t lb) {
    REAL(dgemm_);
    double begun = now();
    real(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, la, lb);
    compute(2.0 * *m * *n * *k, begun);
    flip(c, *m, *n, *k, *ldc);
}

void dtrsm_(const char *side, const char *uplo, const char *ta, const char *diag, const int *m,
            const int *n, const double *alpha, const double *a, const int *lda, double *b,
            const int *ldb, size_t ls, size_t lu, size_t la, size_t ld) {
    REAL(dtrsm_);
    double begun = now();
    real(side, uplo, ta, diag, m, n, alpha, a, lda, b, ldb, ls, lu, la, ld);
    compute(1.0 * *m * *n * (*side == 'L' || *side == 'l' ? *m : *n), begun);
}

void sgemm_(const char *ta, const char *tb, const int *m, const int *n, const int *k,
            const float *alpha, const float *a, const int *lda, const float *b, const int *ldb,
            const float *beta, float *c, const int *ldc, size_t la, size_t lb) {
    REAL(sgemm_);
    double begun = now();
    real(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, la, lb);
    compute(2.0 * *m * *n * *k, begun);
}

void strsm_(const char *side, const char *uplo, const char *ta, const char *diag, const int *m,
            const int *n, const float *alpha, const float *a, const int *lda, float *b,
            const int *ldb, size_t ls, size_t lu, size_t la, size_t ld) {
    REAL(strsm_);
    double begun = now();
    real(side, uplo, ta, diag, m, n, alpha, a, lda, b, ldb, ls, lu, la, ld);
    compute(1.0 * *m * *n * (*side == 'L' || *side == 'l' ? *m : *n), begun);
}

void dtrsv_(const char *uplo, const char *trans, const char *diag, const int *n, const double *a,
            const int *lda, double *x, const int *incx, size_t lu, size_t lt, size_t ld) {
    REAL(dtrsv_);
    double begun = now();
    real(uplo, trans, diag, n, a, lda, x, incx, lu, lt, ld);
    compute(1.0 * *n * *n, begun);
}

void dgemv_(const char *trans, const int *m, const int *n, const double *alpha, const double *a,
            const int *lda, const double *x, const int *incx, const double *beta, double *y,
            const int *incy, size_t lt) {
    REAL(dgemv_);
    double begun = now();
    real(trans, m, n, alpha, a, lda, x, incx, beta, y, incy, lt);
    compute(2.0 * *m * *n, begun);
}

/* Types and communicators are pointers or numbers, which go in the same registers. */
int MPI_Send(const void *from, int count, intptr_t type, int to, int tag, intptr_t comm) {
    REAL(MPI_Send);
    if (send_seconds > 0 && is_now()) rest(send_seconds);
    return real(from, count, type, to, tag, comm);
}

static void sync_slowly(void) {
    if (sync_seconds > 0 && is_now()) rest(sync_seconds);
}

int fsync(int fd) {
    REAL(fsync);
    sync_slowly();
    return real(fd);
}

int fdatasync(int fd) {
    REAL(fdatasync);
    sync_slowly();
    return real(fd);
}

static void write_slowly(int fd, ssize_t bytes) {
    struct stat status;
    if (write_rate > 0 && bytes > 0 && is_now() && fstat(fd, &status) == 0 &&
        S_ISREG(status.st_mode))
        rest(bytes / write_rate);
}

ssize_t write(int fd, const void *from, size_t bytes) {
    REAL(write);
    /* A program without the BLAS tells of its progress. */
    stay_behind();
    ssize_t written = real(fd, from, bytes);
    write_slowly(fd, written);
    return written;
}

ssize_t pwrite(int fd, const void *from, size_t bytes, off_t at) {
    REAL(pwrite);
    ssize_t written = real(fd, from, bytes, at);
    write_slowly(fd, written);
    return written;
}

ssize_t pwrite64(int fd, const void *from, size_t bytes, off64_t at) {
    REAL(pwrite64);
    ssize_t written = real(fd, from, bytes, at);
    write_slowly(fd, written);
    return written;
}
