/* Wrong uses of the calls of skt.h. Each rank prints a line `CALL CODE TEXT` for each call that the
 * test looks at, after its rank. Argument: the name of the case. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mpi.h>
#include <skt.h>

#include "say.h"

static double numbers[1000];

static void begin(size_t bytes, const char *options) { must(skt_init(MPI_COMM_WORLD, bytes, options)); }

/* All calls that need an open run. */
static void all_calls(void) {
    MPI_Comm comm;
    int64_t found;
    size_t count, item;
    void *memory;
    double seconds;
    int due;
    SAY(skt_comm(&comm));
    SAY(skt_found(&found));
    SAY(skt_saved(1, &count, &item));
    SAY(skt_alloc(1, 1, 8, &memory));
    SAY(skt_protect(1, numbers, 1, 8));
    SAY(skt_unprotect(1));
    SAY(skt_restore());
    SAY(skt_checkpoint());
    SAY(skt_checkpoint_begin());
    SAY(skt_checkpoint_test(&due));
    SAY(skt_checkpoint_wait());
    SAY(skt_due(&due));
    SAY(skt_time_left(&seconds));
    SAY(skt_image(0, &found));
    SAY(skt_images_wait());
    SAY(skt_finalize(1));
}

static void nulls(void) {
    size_t one;
    begin(8000, NULL);
    SAY(skt_comm(NULL));
    SAY(skt_comm_f(NULL));
    SAY(skt_found(NULL));
    SAY(skt_saved(1, NULL, &one));
    SAY(skt_saved(1, &one, NULL));
    SAY(skt_alloc(1, 1, 8, NULL));
    SAY(skt_protect(1, NULL, 1, 8));
    SAY(skt_due(NULL));
    SAY(skt_time_left(NULL));
    SAY(skt_image(0, NULL));
    SAY(skt_checkpoint_test(NULL));
    SAY(skt_protect(1, numbers, 0, 8));
    SAY(skt_protect(1, numbers, 8, 0));
    SAY(skt_protect(1, numbers, (size_t)-1, 8));
    SAY(skt_unprotect(9));
    SAY(skt_checkpoint());
    must(skt_protect(1, numbers, 10, 8));
    SAY(skt_protect(1, NULL, 1, 8));
    SAY(skt_checkpoint());
    SAY(skt_checkpoint()); /* What was protected before may be gone. */
    must(skt_finalize(1));
}

static void space(void) {
    void *memory;
    begin(800, NULL);
    must(skt_protect(1, numbers, 10, 8));
    must(skt_protect(2, numbers, 50, 8));
    if (rank == 1) SAY(skt_protect(1, numbers, 30000, 8));
    SAY(skt_checkpoint());
    /* What was protected before may be gone. */
    if (rank == 1) SAY(skt_unprotect(1));
    /* Told once; the other regions are as they were before. */
    must(skt_checkpoint());
    if (rank == 0) SAY(skt_alloc(3, 30000, 8, &memory));
    SAY(skt_checkpoint());
    for (int id = 0; id < SKT_REGIONS; id++) {
        if (skt_protect(id, numbers, 1, 1) != SKT_SUCCESS) exit(4);
    }
    SAY(skt_protect(SKT_REGIONS, numbers, 1, 1));
    SAY(skt_finalize(1));
    must(skt_finalize(1));
}

static void kinds(void) {
    void *one, *two;
    begin(8000, NULL);
    must(skt_alloc(1, 10, 8, &one));
    SAY(skt_alloc(1, 10, 8, &two));
    if (one != two) exit(4);
    SAY(skt_alloc(1, 11, 8, &two));
    SAY(skt_protect(1, numbers, 10, 8));
    must(skt_protect(2, numbers, 10, 8));
    SAY(skt_alloc(2, 10, 8, &two));
    SAY(skt_protect(3, (char *)one + 72, 1, 8));
    SAY(skt_unprotect(1));
    SAY(skt_finalize(1));
    must(skt_unprotect(2));
    must(skt_checkpoint());
    must(skt_finalize(0));

    /* The checkpoint has memory of skt_alloc alone. */
    begin(8000, NULL);
    must(skt_alloc(1, 10, 8, &one));
    must(skt_protect(2, numbers, 10, 8));
    SAY(skt_restore());
    must(skt_finalize(1));
}

/* What a start finds that protects other regions than the one before. */
static void sizes(void) {
    size_t count, item;
    int64_t found;
    begin(8000, NULL);
    must(skt_protect(1, numbers, 100, 8));
    must(skt_protect(2, numbers + 100, 1, 8));
    numbers[99] = 5 + rank;
    must(skt_checkpoint());
    must(skt_finalize(0));

    SAY(skt_init(MPI_COMM_WORLD, 9000, NULL));
    SAY(skt_init(MPI_COMM_WORLD, 8000, "application = \"other\""));
    begin(8000, NULL);
    must(skt_found(&found));
    if (found != 1) exit(4);
    must(skt_saved(1, &count, &item));
    if (count != 100 || item != 8) exit(4);
    must(skt_saved(7, &count, &item));
    if (count != 0 || item != 0) exit(4);
    must(skt_protect(2, numbers + 100, 1, 8));
    must(skt_protect(1, numbers, rank == 1 ? 101 : 100, 8));
    SAY(skt_restore());
    must(skt_protect(1, numbers, 100, 8));
    must(skt_unprotect(2));
    SAY(skt_restore());
    must(skt_protect(2, numbers + 100, 1, 8));
    must(skt_protect(3, numbers + 101, 1, 8));
    SAY(skt_restore());
    must(skt_unprotect(3));
    SAY(skt_checkpoint());
    memset(numbers, 0, sizeof numbers);
    must(skt_restore());
    if (numbers[99] != 5 + rank) exit(4);
    must(skt_saved(1, &count, &item));
    if (count != 100 || item != 8) exit(4);
    SAY(skt_restore());
    /* A region that has grown is restored with its new size. */
    must(skt_protect(1, numbers, 200, 8));
    numbers[199] = 7 + rank;
    must(skt_checkpoint());
    must(skt_finalize(0));
    begin(8000, NULL);
    must(skt_saved(1, &count, &item));
    if (count != 200 || item != 8) exit(4);
    memset(numbers, 0, sizeof numbers);
    must(skt_protect(1, numbers, 200, 8));
    must(skt_protect(2, numbers + 200, 1, 8));
    must(skt_restore());
    if (numbers[199] != 7 + rank) exit(4);
    must(skt_finalize(1));
}

/* At once in each start, then not before the interval is over. */
static void due(void) {
    int is_due = 0;
    double left = 0;
    begin(8000, "mtbf_seconds = 1e9\ntime_limit = 'never'");
    must(skt_protect(1, numbers, 10, 8));
    must(skt_time_left(&left));
    if (left != HUGE_VAL) exit(4);
    must(skt_due(&is_due));
    if (is_due != SKT_DUE_NOW) exit(4);
    must(skt_checkpoint());
    must(skt_due(&is_due));
    if (is_due != SKT_NOT_DUE) exit(4);
    must(skt_finalize(1));
    begin(8000, "time_limit = '1h'");
    must(skt_protect(1, numbers, 10, 8));
    must(skt_time_left(&left));
    if (left > 3600 || left < 3000) exit(4);
    must(skt_due(&is_due));
    if (is_due != SKT_DUE_NOW) exit(4);
    must(skt_finalize(1));
    begin(8000, "time_limit = '@1000'");
    must(skt_protect(1, numbers, 10, 8));
    must(skt_due(&is_due));
    if (is_due != SKT_DUE_LAST) exit(4);
    must(skt_finalize(1));
}

/* A checkpoint has what the regions have when it begins; until it is complete the one before counts. */
static void overlap(void) {
    double *ours;
    void *memory;
    int done = 0, is_due = 1;
    int64_t found;
    begin(8000, NULL);
    SAY(skt_checkpoint_test(&done));
    SAY(skt_checkpoint_wait());
    SAY(skt_checkpoint_begin());
    must(skt_alloc(1, 100, 8, &memory));
    ours = memory;
    must(skt_protect(2, numbers, 100, 8));
    ours[99] = 1 + rank;
    numbers[99] = 2 + rank;
    must(skt_checkpoint());
    ours[99] = 3 + rank;
    numbers[99] = 4 + rank;
    must(skt_checkpoint_begin());
    for (int i = 0; i < 100; i++) numbers[i] = -1;
    SAY(skt_checkpoint());
    SAY(skt_checkpoint_begin());
    SAY(skt_images_wait());
    SAY(skt_finalize(1));
    must(skt_due(&is_due));
    if (is_due != SKT_NOT_DUE) exit(4);
    /* The ranks need not test alike, and the program's memory may be another from here on. */
    for (int i = 0; rank == 2 && i < 10; i++) must(skt_checkpoint_test(&done));
    /* Others are in skt_checkpoint_wait, and do their part of it there. */
    while (rank == 1 && !done) must(skt_checkpoint_test(&done));
    must(skt_unprotect(2));
    must(skt_protect(2, numbers + 100, 100, 8));
    must(skt_checkpoint_wait());
    SAY(skt_checkpoint_wait());
    must(skt_finalize(0));

    begin(8000, NULL);
    must(skt_found(&found));
    must(skt_alloc(1, 100, 8, &memory));
    ours = memory;
    must(skt_protect(2, numbers, 100, 8));
    must(skt_restore());
    if (found != 2 || ours[99] != 3 + rank || numbers[99] != 4 + rank) exit(4);
    must(skt_checkpoint_begin());
    SAY(skt_alloc(3, 10, 8, &memory));
    SAY(skt_checkpoint_wait()); /* It tells of skt_alloc. */
    /* What is there already is given again. */
    must(skt_alloc(1, 100, 8, &memory));
    must(skt_checkpoint_wait());
    must(skt_checkpoint_begin());
    if (rank == 1) ours[0] = 7;
    SAY(skt_checkpoint_wait());
    SAY(skt_finalize(0));
}

/* Memory of the library is asked for before the program's is restored, up to all there is. */
static void alloc_first(void) {
    void *memory;
    begin(8000, NULL);
    must(skt_alloc(1, 100, 8, &memory));
    must(skt_protect(2, numbers, 450, 8));
    numbers[449] = 5 + rank;
    must(skt_checkpoint());
    must(skt_finalize(0));
    begin(8000, NULL);
    numbers[449] = 0;
    must(skt_alloc(3, 440, 8, &memory));
    memset(memory, 7, 440 * 8);
    must(skt_alloc(1, 100, 8, &memory));
    must(skt_protect(2, numbers, 450, 8));
    must(skt_restore());
    if (numbers[449] != 5 + rank) exit(4);
    must(skt_checkpoint());
    SAY(skt_alloc(4, 30000, 8, &memory));
    SAY(skt_finalize(1));
    must(skt_finalize(1));
}

/* Levels that are none. file: a folder that exists. */
static void levels(const char *folder) {
    char text[500];
    int64_t image = -1;
    SAY(skt_init(MPI_COMM_WORLD, 8000, rank == 1 ? "levels = 'near:/x'" : NULL));
    SAY(skt_init(MPI_COMM_WORLD, 8000, rank == 1 ? "levels = 'local:/x'" : NULL));
    SAY(skt_init(MPI_COMM_WORLD, 8000, "levels = 'local:/nowhere/at/all'"));
    snprintf(text, sizeof text, "levels = 'local:%s,every=1ms!'", folder);
    begin(8000, text);
    SAY(skt_image(-1, &image));
    SAY(skt_image(1, &image));
    must(skt_image(0, &image));
    if (image != 0) exit(4);
    must(skt_protect(1, numbers, 1000, 8));
    usleep(10000); /* longer than `every` */
    must(skt_checkpoint());
    must(skt_images_wait());
    must(skt_image(0, &image));
    if (image != 1) exit(4);
    /* From here on rank 1 can write no file of some length: its image fails, the run does not. */
    if (rank == 1) {
        struct rlimit limit = {4096, 4096};
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    usleep(10000);
    must(skt_checkpoint());
    must(skt_images_wait());
    SAY(skt_image(0, &image));
    must(skt_checkpoint());
    must(skt_finalize(1));
}

/* A level whose folder goes while its run waits for the next start, and what ends the run all the
 * same. folder: one that exists. */
static void level_gone(const char *folder) {
    char level[500], removal[500];
    snprintf(level, sizeof level, "levels = 'local:%s,every=1ms!'", folder);
    begin(8000, level);
    must(skt_protect(1, numbers, 1000, 8));
    must(skt_checkpoint());
    must(skt_images_wait());
    must(skt_finalize(0));
    MPI_Barrier(MPI_COMM_WORLD);
    snprintf(removal, sizeof removal, "rm -rf '%s'", folder);
    if (rank == 0 && system(removal) != 0) exit(4);
    MPI_Barrier(MPI_COMM_WORLD);
    begin(8000, level);
    must(skt_protect(1, numbers, 1000, 8));
    must(skt_restore());
    must(skt_checkpoint());
    SAY(skt_finalize(1));
}

/* Seconds that the disk of this rank takes to sync a file. */
static unsigned slow_sync;

/* In place of the system's, which the library would call. */
int fsync(int file) {
    (void)file;
    if (slow_sync > 0) sleep(slow_sync);
    return 0;
}

/* The disk of one rank takes longer than the ranks of a call wait for the last one. */
static void slow_disk(const char *folder, int in_parts) {
    char text[500];
    int is_due;
    snprintf(text, sizeof text, "timeout_seconds = 4\nlevels = 'local:%s,every=1ms!'", folder);
    begin(8000, text);
    must(skt_protect(1, numbers, 1000, 8));
    if (rank == 1) slow_sync = 5;
    usleep(10000); /* longer than `every` */
    must(skt_checkpoint());
    /* It waits for the image of the one before. */
    if (in_parts) {
        must(skt_checkpoint_begin());
        must(skt_checkpoint_wait());
    } else {
        must(skt_checkpoint());
    }
    must(skt_due(&is_due));
    slow_sync = 0;
    must(skt_finalize(1));
}

/* Called by exit, when what belongs to the thread is gone. */
static void end_at_exit(void) {
    must(skt_checkpoint());
    SAY(skt_unprotect(9));
    must(skt_finalize(1));
    MPI_Finalize();
}

static void at_exit(void) {
    begin(8000, NULL);
    must(skt_protect(1, numbers, 10, 8));
    atexit(end_at_exit);
    exit(0);
}

/* Tells a rank that waits in wait_for_others that this one has given it up. */
static void gave_up(const char *file) {
    char name[500];
    snprintf(name, sizeof name, "%s.%d", file, rank);
    fclose(fopen(name, "w"));
}

static void wait_for_others(const char *file) {
    char name[500];
    for (int other = 0; other < size; other++) {
        snprintf(name, sizeof name, "%s.%d", file, other);
        while (other != rank && access(name, F_OK) != 0) usleep(1000);
    }
}

/* A rank that comes too late for a call, and what is left to it then. */
static void late(int late_rank, const char *file) {
    begin(8000, "timeout_seconds = 5");
    must(skt_protect(1, numbers, 10, 8));
    if (rank == late_rank) wait_for_others(file);
    SAY(skt_checkpoint());
    gave_up(file);
    SAY(skt_checkpoint());
    SAY(skt_finalize(1));
    SAY(skt_init(MPI_COMM_WORLD, 8000, NULL));
}

/* A rank that comes late, but in time: with the same call as the others, then with another one. */
static void in_time(void) {
    begin(8000, "timeout_seconds = 8");
    must(skt_protect(1, numbers, 10, 8));
    if (rank == 1) sleep(5);
    must(skt_checkpoint());
    if (rank == 1) sleep(5);
    if (rank == 1) SAY(skt_finalize(1));
    else SAY(skt_checkpoint());
    must(skt_checkpoint());
    must(skt_finalize(1));
}

static void different(void) {
    begin(8000, NULL);
    must(skt_protect(1, numbers, 10, 8));
    if (rank == 1) SAY(skt_finalize(1));
    else SAY(skt_checkpoint());
    SAY(skt_finalize(rank == 0));
    /* Any rank may be the first to know that something is wrong. */
    for (int i = 0; i < 1000; i++) {
        if ((rank == i % size ? skt_restore() : skt_checkpoint()) != SKT_ERR_ORDER) exit(4);
    }
    must(skt_checkpoint());
    must(skt_finalize(1));
}

/* One rank alone cannot open its store, in the middle of a collective call: the folder of all is
 * below the one that each is in. */
static void alone(const char *folder) {
    if (chdir(rank == 1 ? "/" : folder) != 0) exit(4);
    if (rank != 1) mkdir("store-of-all", 0700);
    SAY(skt_init(MPI_COMM_WORLD, 8000, "store = \"file:/proc/self/cwd/store-of-all\""));
    SAY(skt_init(MPI_COMM_WORLD, 8000, NULL));
}

static void *in_checkpoint(void *unused) {
    int code;
    (void)unused;
    do code = skt_checkpoint();
    while (code == SKT_ERR_THREAD);
    must(code);
    return NULL;
}

/* Rank 0 makes a call while another of its threads waits in one. */
static void threads(const char *file) {
    begin(8000, NULL);
    must(skt_protect(1, numbers, 10, 8));
    if (rank == 0) {
        pthread_t other;
        int64_t found;
        int code;
        pthread_create(&other, NULL, in_checkpoint, NULL);
        do code = skt_found(&found);
        while (code == SKT_SUCCESS);
        say("skt_found(&found)", code);
        fclose(fopen(file, "w"));
        pthread_join(other, NULL);
    } else {
        /* Rank 0 is in its call until this one is made. */
        while (access(file, F_OK) != 0) usleep(1000);
        must(skt_checkpoint());
    }
    must(skt_finalize(1));
}

static void *from_another(void *unused) {
    (void)unused;
    SAY(skt_checkpoint());
    return NULL;
}

static void other_thread(void) {
    pthread_t other;
    begin(8000, NULL);
    must(skt_protect(1, numbers, 10, 8));
    pthread_create(&other, NULL, from_another, NULL);
    pthread_join(other, NULL);
    must(skt_finalize(1));
}

static void run(const char *name, const char *argument) {
    if (!strcmp(name, "nulls")) nulls();
    else if (!strcmp(name, "space")) space();
    else if (!strcmp(name, "kinds")) kinds();
    else if (!strcmp(name, "sizes")) sizes();
    else if (!strcmp(name, "due")) due();
    else if (!strcmp(name, "overlap")) overlap();
    else if (!strcmp(name, "alloc-first")) alloc_first();
    else if (!strcmp(name, "levels")) levels(argument);
    else if (!strcmp(name, "level-gone")) level_gone(argument);
    else if (!strcmp(name, "slow-disk")) slow_disk(argument, 0);
    else if (!strcmp(name, "slow-disk-in-parts")) slow_disk(argument, 1);
    else if (!strcmp(name, "at-exit")) at_exit();
    else if (!strcmp(name, "ended")) {
        SAY(skt_init(MPI_COMM_WORLD, 8000, "application = ''"));
    }
    else if (!strcmp(name, "late-1")) late(1, argument);
    else if (!strcmp(name, "late-0")) late(0, argument);
    else if (!strcmp(name, "in-time")) in_time();
    else if (!strcmp(name, "different")) different();
    else if (!strcmp(name, "alone")) alone(argument);
    else if (!strcmp(name, "threads")) threads(argument);
    else if (!strcmp(name, "other-thread")) other_thread();
    else if (!strcmp(name, "before-init")) all_calls();
    else if (!strcmp(name, "after-finalize")) {
        begin(8000, NULL);
        must(skt_finalize(1));
        all_calls();
        begin(8000, NULL);
        SAY(skt_init(MPI_COMM_WORLD, 8000, NULL));
        must(skt_finalize(1));
    } else if (!strcmp(name, "init")) {
        SAY(skt_init(MPI_COMM_NULL, 8000, NULL));
        SAY(skt_init(MPI_COMM_WORLD, rank == 1 ? 0 : 8000, NULL));
        SAY(skt_init(MPI_COMM_WORLD, (size_t)-1, NULL));
        SAY(skt_init(MPI_COMM_WORLD, 8000, rank == 1 ? "parities = 0" : NULL));
        SAY(skt_init(MPI_COMM_WORLD, 8000, rank == 1 ? "group_size = 3" : NULL));
        SAY(skt_init(MPI_COMM_WORLD, 8000, "resume = \"require\""));
    } else if (!strcmp(name, "late-init")) {
        if (rank == 1) wait_for_others(argument);
        SAY(skt_init(MPI_COMM_WORLD, 8000, "timeout_seconds = 1"));
        gave_up(argument);
    } else {
        exit(5);
    }
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    int level, wanted = strcmp(name, "other-thread") ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
    if (!strcmp(name, "outside")) SAY(skt_init(MPI_COMM_WORLD, 8000, NULL));
    MPI_Init_thread(&argc, &argv, wanted, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!strcmp(name, "outside")) {
        MPI_Finalize();
        all_calls();
        SAY(skt_init(MPI_COMM_WORLD, 8000, NULL));
        return 0;
    }
    run(name, argc > 2 ? argv[2] : "");
    return MPI_Finalize();
}
