/* Measures one NVIDIA GPU: its link to the host by kind of memory and size, and which kinds of host
 * memory can be registered with its driver and read by it in place. scripts/dev/test-device builds
 * and runs it. Rates need a GPU; on a library that stands in for the driver only the calls are
 * tried.
 *
 *     rates FILE MIB     appends JSON lines to FILE; MIB: the largest copy, and each kind's size
 *
 * Exit codes: 0; 1: data came back wrong; 2: no driver, no device, or a call failed. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <time.h>
#include <unistd.h>

#include <fcntl.h>

#include "driver.h"

enum { BATCHES = 5, GIB = 1 << 30, KIB = 1024 };
/* A batch of copies takes this long, or is one copy. */
static const double batch_seconds = 0.02;

static FILE *json;
static size_t bytes;
static int wrong;
static stream_t stream, other;
static address device_memory, more_device_memory;
static void *copy_words; /* the kernel below; null: it was refused */

/* Copies words of 8 bytes: the device itself reads host memory, not its copy engine. */
static const char kernel[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry copy_words(.param .u64 to, .param .u64 from, .param .u64 words) {\n"
    ".reg .pred %p;\n.reg .b32 %r<4>;\n.reg .b64 %d<8>;\n"
    "ld.param.u64 %d1, [to];\ncvta.to.global.u64 %d1, %d1;\n"
    "ld.param.u64 %d2, [from];\ncvta.to.global.u64 %d2, %d2;\n"
    "ld.param.u64 %d3, [words];\n"
    "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmov.u32 %r3, %tid.x;\n"
    "mul.wide.u32 %d4, %r1, %r2;\ncvt.u64.u32 %d5, %r3;\nadd.u64 %d4, %d4, %d5;\n"
    "mov.u32 %r1, %nctaid.x;\nmul.wide.u32 %d5, %r1, %r2;\n"
    "again:\nsetp.ge.u64 %p, %d4, %d3;\n@%p bra done;\n"
    "shl.b64 %d6, %d4, 3;\nadd.u64 %d7, %d2, %d6;\nadd.u64 %d6, %d1, %d6;\n"
    "ld.global.u64 %d7, [%d7];\nst.global.u64 [%d6], %d7;\n"
    "add.u64 %d4, %d4, %d5;\nbra again;\ndone:\nret;\n}\n";

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Fills memory with words that depend on place and `salt`. */
static void fill(void *memory, size_t size, uint64_t salt) {
    uint64_t *words = memory;
    for (size_t n = 0; n < size / 8; n++) words[n] = (n + salt) * 0x9e3779b97f4a7c15u;
}

/* Counts a fault where memory has not what `fill` writes. Returns whether it has. */
static int holds(const void *memory, size_t size, uint64_t salt) {
    const uint64_t *words = memory;
    size_t n = 0;
    while (n < size / 8 && words[n] == (n + salt) * 0x9e3779b97f4a7c15u) n++;
    wrong += n < size / 8;
    return n == size / 8;
}

static void *need_memory(size_t size) {
    void *memory = NULL;
    if (posix_memalign(&memory, 4096, size) != 0) {
        fprintf(stderr, "rates: no memory for %zu bytes\n", size);
        exit(NO_DEVICE);
    }
    return memory;
}

/* The way of a copy. BOTH: half of the size each way, at once, on two streams. */
enum way { IN, OUT, BOTH };
static const char *const ways[] = {"to device", "to host", "both at once"};

static void enqueue(enum way way, char *host, size_t size) {
    size_t half = size / 2;
    if (way == IN) NEED(cu.to_device(device_memory, host, size, stream));
    if (way == OUT) NEED(cu.to_host(host, device_memory, size, stream));
    if (way == BOTH) {
        NEED(cu.to_device(device_memory, host, half, stream));
        NEED(cu.to_host(host + half, more_device_memory, half, other));
    }
}

static double seconds_of(enum way way, void *host, size_t size, int times) {
    double begun = now();
    for (int n = 0; n < times; n++) enqueue(way, host, size);
    NEED(cu.stream_wait(stream));
    NEED(cu.stream_wait(other));
    return (now() - begun) / times;
}

/* Bytes a second of copies of one size, the median of some batches after a warm-up. For BOTH the
 * sum of the two ways. */
static double rate(enum way way, void *host, size_t size) {
    double seconds[BATCHES];
    double once = (seconds_of(way, host, size, 1), seconds_of(way, host, size, 1));
    int times = 1;
    if (once < batch_seconds / 1000) times = 1000;
    else if (once < batch_seconds) times = (int)(batch_seconds / once);
    for (int n = 0; n < BATCHES; n++) seconds[n] = seconds_of(way, host, size, times);
    qsort(seconds, BATCHES, sizeof *seconds, compare);
    return (double)size / seconds[BATCHES / 2];
}

/* Whether what goes to the device and comes back is what it was. */
static void check_copies(void *host, size_t size) {
    fill(host, size, 1);
    NEED(cu.to_device(device_memory, host, size, stream));
    NEED(cu.stream_wait(stream));
    fill(host, size, 2);
    NEED(cu.to_host(host, device_memory, size, stream));
    NEED(cu.stream_wait(stream));
    if (!holds(host, size, 1)) fprintf(stderr, "rates: %zu bytes came back WRONG\n", size);
}

static void copies_of(const char *kind, void *host) {
    for (size_t size = 64 * KIB; size <= bytes; size *= 16) {
        check_copies(host, size);
        for (enum way way = IN; way <= BOTH; way++) {
            double gbs = rate(way, host, size) * 1e-9;
            printf("  %-10s %10zu KiB, %-12s %8.2f GB/s\n", kind, size / KIB, ways[way], gbs);
            fprintf(json,
                    "{\"what\": \"copy\", \"memory\": \"%s\", \"bytes\": %zu, \"way\": \"%s\", "
                    "\"gbs\": %.4g}\n",
                    kind, size, ways[way], gbs);
        }
    }
}

static void copies(void) {
    void *host = need_memory(bytes), *pinned;
    memset(host, 1, bytes);
    printf("copies between host and device (medians of %d; both at once: their sum)\n", BATCHES);
    copies_of("pageable", host);
    int code = cu.host_register(host, bytes, HOST_REGISTER_MAPPED);
    if (code == 0) {
        copies_of("registered", host);
        NEED(cu.host_unregister(host));
    } else {
        printf("  registered: the driver refuses it: %s\n", error_of(code));
        fprintf(json, "{\"what\": \"copy\", \"memory\": \"registered\", \"error\": \"%s\"}\n",
                error_of(code));
    }
    free(host);
    NEED(cu.host_alloc(&pinned, bytes, HOST_ALLOC_MAPPED));
    copies_of("pinned", pinned);
    NEED(cu.host_free(pinned));
}

/* A kind of host memory. `get` returns null, with errno, where the system refuses it. */
struct kind {
    const char *name;
    void *(*get)(void);
    void (*drop)(void *memory);
};

static void *mapped(int flags, int file) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
    int why = errno;
    if (file >= 0) close(file);
    errno = why;
    return memory == MAP_FAILED ? NULL : memory;
}

/* Allocates the file: where it does not fit, a write to it would end the program. */
static void *mapped_file(int file) {
    if (file < 0) return NULL;
    int why = posix_fallocate(file, 0, (off_t)bytes);
    if (why == 0) return mapped(MAP_SHARED, file);
    close(file);
    errno = why;
    return NULL;
}

static void *segment(int flags) {
    int id = shmget(IPC_PRIVATE, bytes, IPC_CREAT | 0600 | flags);
    void *memory = id < 0 ? (void *)-1 : shmat(id, NULL, 0);
    int why = errno;
    /* It goes with this process. */
    if (id >= 0) shmctl(id, IPC_RMID, NULL);
    errno = why;
    return memory == (void *)-1 ? NULL : memory;
}

static void *shm_opened(void) {
    char name[64];
    snprintf(name, sizeof name, "/test-device-%ld", (long)getpid());
    int file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file >= 0) shm_unlink(name);
    return mapped_file(file);
}

static void *private_mmap(void) { return mapped(MAP_PRIVATE | MAP_ANONYMOUS, -1); }
static void *huge_mmap(void) { return mapped(MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1); }
static void *shared_mmap(void) { return mapped(MAP_SHARED | MAP_ANONYMOUS, -1); }
static void *memfd(void) { return mapped_file(memfd_create("test-device", 0)); }
static void *huge_memfd(void) { return mapped_file(memfd_create("test-device", MFD_HUGETLB)); }
static void *sysv(void) { return segment(0); }
static void *huge_sysv(void) { return segment(SHM_HUGETLB); }
static void *from_heap(void) { return need_memory(bytes); }
static void unmap(void *memory) { munmap(memory, bytes); }
static void detach(void *memory) { shmdt(memory); }

static const struct kind kinds[] = {
    {"malloc", from_heap, free},
    {"mmap private", private_mmap, unmap},
    {"mmap private, huge pages", huge_mmap, unmap},
    {"mmap shared", shared_mmap, unmap},
    {"memfd_create", memfd, unmap},
    {"memfd_create, huge pages", huge_memfd, unmap},
    {"shm_open", shm_opened, unmap},
    {"System V", sysv, detach},
    {"System V, huge pages", huge_sysv, detach},
};

static int launch(void **arguments) {
    return cu.launch(copy_words, 1024, 1, 1, 256, 1, 1, 0, stream, arguments, NULL);
}

/* Has the device read host memory at `from` and write it to its own: by its copy engine, or by the
 * kernel. Prints the rate, or the refusal. */
static void read_in_place(const char *by, const char *key, int with_kernel, address from,
                          void *check) {
    address to = device_memory;
    uint64_t words = bytes / 8;
    void *arguments[] = {&to, &from, &words};
    double begun = 0;
    int code = 0;
    if (with_kernel && copy_words == NULL) return;
    /* The first time warms up. */
    for (int n = 0; n < 2 && code == 0; n++) {
        begun = now();
        code = with_kernel ? launch(arguments) : cu.within(to, from, bytes, stream);
        if (code == 0) code = cu.stream_wait(stream);
    }
    double gbs = (double)bytes / (now() - begun) * 1e-9;
    if (code != 0) {
        printf("; read by %s: %s", by, error_of(code));
        fprintf(json, ", \"%s_error\": \"%s\"", key, error_of(code));
        return;
    }
    memset(check, 0, bytes);
    NEED(cu.to_host(check, device_memory, bytes, stream));
    NEED(cu.stream_wait(stream));
    int right = holds(check, bytes, 3);
    printf("; read by %s %.1f GB/s%s", by, gbs, right ? "" : " WRONG");
    fprintf(json, ", \"%s_gbs\": %.4g, \"%s_right\": %s", key, gbs, key, right ? "true" : "false");
}

static void read_registered(void *memory, void *check) {
    address pointer;
    int code = cu.device_pointer(&pointer, memory, 0);
    if (code != 0) {
        printf("; no address for the device: %s", error_of(code));
        fprintf(json, ", \"device_pointer_error\": \"%s\"", error_of(code));
        return;
    }
    read_in_place("copy", "copy", 0, pointer, check);
    read_in_place("kernel", "kernel", 1, pointer, check);
}

static void try_kind(const struct kind *kind, int reads_pageable, void *check) {
    double gib = (double)bytes / GIB, begun = now();
    char *memory = kind->get();
    printf("  %-24s ", kind->name);
    fprintf(json, "{\"what\": \"kind\", \"memory\": \"%s\", \"bytes\": %zu", kind->name, bytes);
    if (memory == NULL) {
        printf(" the system refuses it: %s\n", strerror(errno));
        fprintf(json, ", \"error\": \"%s\"}\n", strerror(errno));
        return;
    }
    memset(memory, 1, bytes);
    double touched = (now() - begun) / gib;
    fill(memory, bytes, 3);
    printf("touch %.3f", touched);
    fprintf(json, ", \"touch_s_per_gib\": %.4g", touched);
    begun = now();
    int code = cu.host_register(memory, bytes, HOST_REGISTER_MAPPED);
    double registered = (now() - begun) / gib;
    if (code != 0) {
        printf(", cannot be registered: %s", error_of(code));
        fprintf(json, ", \"register_error\": \"%s\"", error_of(code));
    } else {
        printf(", register %.3f", registered);
        fprintf(json, ", \"register_s_per_gib\": %.4g", registered);
        read_registered(memory, check);
        begun = now();
        NEED(cu.host_unregister(memory));
        printf("; unregister %.3f", (now() - begun) / gib);
        fprintf(json, ", \"unregister_s_per_gib\": %.4g", (now() - begun) / gib);
    }
    /* On other devices a kernel that reads this memory ends the use of the device. */
    if (reads_pageable) {
        address same = (address)(uintptr_t)memory;
        read_in_place("kernel unregistered", "kernel_unregistered", 1, same, check);
    }
    printf("\n");
    fprintf(json, "}\n");
    kind->drop(memory);
}

static void kinds_of_memory(int reads_pageable) {
    void *check = need_memory(bytes), *module;
    int code = cu.load(&module, kernel);
    if (code == 0) code = cu.function(&copy_words, module, "copy_words");
    if (code != 0) copy_words = NULL;
    printf("host memory, s/GiB, and what the device reads of it once registered\n");
    if (code != 0) printf("  the driver refuses the kernel that reads: %s\n", error_of(code));
    fprintf(json, "{\"what\": \"kernel\", \"error\": \"%s\"}\n", code == 0 ? "" : error_of(code));
    for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++) {
        try_kind(&kinds[n], reads_pageable, check);
    }
    free(check);
}

/* Returns whether the device reads host memory that is not registered. */
static int describe(int device) {
    char name[256] = "";
    size_t total = 0;
    int version = 0, pageable = 0, tables = 0;
    NEED(cu.version(&version));
    NEED(cu.name(name, sizeof name, device));
    NEED(cu.total(&total, device));
    NEED(cu.attribute(&pageable, READS_PAGEABLE_MEMORY, device));
    NEED(cu.attribute(&tables, USES_PAGE_TABLES_OF_HOST, device));
    printf("device: %s, %.1f GiB; driver of CUDA %d.%d; reads unregistered host memory: %s\n", name,
           (double)total / GIB, version / 1000, version % 1000 / 10,
           !pageable ? "no" : tables ? "yes, by the host's page tables" : "yes, by page faults");
    fprintf(json,
            "{\"what\": \"device\", \"name\": \"%s\", \"memory_bytes\": %zu, "
            "\"cuda_of_driver\": \"%d.%d\", \"pageable_access\": %d, \"host_page_tables\": %d}\n",
            name, total, version / 1000, version % 1000 / 10, pageable, tables);
    return pageable;
}

int main(int argc, char **argv) {
    long mib = argc == 3 ? atol(argv[2]) : 0;
    if (mib < 1 || (json = fopen(argv[1], "a")) == NULL) {
        fprintf(stderr, "usage: rates FILE MIB; FILE can be written, MIB is 1 at least\n");
        return NO_DEVICE;
    }
    bytes = (size_t)mib << 20;
    setvbuf(stdout, NULL, _IOLBF, 0);
    int device = take_device(0), reads_pageable = describe(device);
    NEED(cu.stream_create(&stream, NON_BLOCKING));
    NEED(cu.stream_create(&other, NON_BLOCKING));
    NEED(cu.alloc(&device_memory, bytes));
    NEED(cu.alloc(&more_device_memory, bytes));
    copies();
    kinds_of_memory(reads_pageable);
    NEED(cu.free(device_memory));
    NEED(cu.free(more_device_memory));
    NEED(cu.stream_destroy(stream));
    NEED(cu.stream_destroy(other));
    NEED(cu.release(device));
    if (wrong > 0) fprintf(stderr, "rates: %d times data was WRONG\n", wrong);
    return fclose(json) != 0 ? NO_DEVICE : wrong > 0;
}
