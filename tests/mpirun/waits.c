/* Ranks that wait sleep: preloaded into a job whose ranks give way to others while they wait
 * (sched_yield, for Open MPI with mpi_yield_when_idle). On a machine with fewer cores than ranks
 * those that wait would take the cores from those that work, the more the busier it is. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/prctl.h>
#include <time.h>

/* A thread that comes back later has not waited meanwhile. */
enum { WORK_NANOS = 20 * 1000 };
/* Messages between ranks that both run take less. */
enum { AWAKE_NANOS = 100 * 1000 };
enum { MOST_NANOS = 1000 * 1000 };

static long long now_nanos(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* By default sleeps are 50 us longer. */
__attribute__((constructor)) static void wake_in_time(void) { prctl(PR_SET_TIMERSLACK, 1000); }

/* Who has waited for a time sleeps for a tenth of it more. */
int sched_yield(void) {
    static _Thread_local long long begun, last;
    static int (*real)(void);
    if (!real) real = (int (*)(void))dlsym(RTLD_NEXT, "sched_yield");
    long long now = now_nanos();
    if (now - last > WORK_NANOS) begun = now;
    long long nap = (now - begun) / 10;
    if (now - begun < AWAKE_NANOS) {
        real();
    } else {
        nanosleep(&(struct timespec){0, nap < MOST_NANOS ? nap : MOST_NANOS}, NULL);
    }
    last = now_nanos();
    return 0;
}
