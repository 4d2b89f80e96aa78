/* A driver of devices that do not exist, for tests of programs that copy from and to a device.
 *
 * - Addresses of device memory are in a range that the host cannot access: a program that
 *   dereferences one ends by SIGSEGV. Handles are addresses in it, too.
 * - Copies are asynchronous and happen as late as the rules allow: at the synchronization of their
 *   stream, or of an event recorded after them. Until then the destination on the host has other
 *   bytes, and the source on the host must keep its own.
 * - What a driver may answer with undefined behavior is reported and aborts: handles that do not
 *   exist any more, memory that is freed or unregistered while a copy uses it or twice, copies
 *   that are partly in pinned memory, registrations that overlap or are not whole pages.
 * - A call by its number, or all calls from it on, fail without having done anything.
 *
 * The environment, for programs that do not call what is exported at the end:
 *   SKT_STAND_IN_REPORT  the file that violations, and what is left at the end, are appended to
 *   SKT_STAND_IN_LOG     the file that a line for each call is appended to
 *   SKT_STAND_IN_FAIL    `K:CODE` fails call K (from 1) with CODE; `K+:CODE` all from call K on,
 *                        as if the device were lost */
#define _GNU_SOURCE
#include "device.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define OBJECTS 4096
#define RANGES 1024
#define ADDRESSES ((size_t)1 << 40)
/* Handles come first; then the memory of devices, with a gap behind each allocation. */
#define GAP ((size_t)1 << 16)

struct object {
    enum kind kind;
    bool alive;
    uintptr_t owner;
    /* Of an event: what it waits for; no stream before it is recorded. */
    const void *stream;
    unsigned long position;
};

struct work {
    struct work *next;
    enum direction direction;
    void *host;
    uintptr_t device;
    size_t bytes;
    unsigned char with;
    const void *stream;
    unsigned long position;
};

struct device_range {
    uintptr_t start;
    size_t bytes;
    unsigned char *content;
};

struct host_range {
    uintptr_t start;
    size_t bytes;
    bool allocated; /* else registered */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uintptr_t reserved;
static struct object objects[OBJECTS];
static size_t object_count;
static struct work *queue;
static unsigned long position;
static struct device_range devices[RANGES];
static size_t device_count, addresses_used = OBJECTS * 16;
static struct host_range hosts[RANGES];
static size_t host_count;
static size_t registrations;

static struct {
    const char *report, *log;
    unsigned long calls, fail_at;
    int code;
    bool onwards, lost, overlaps;
    const char *failed;
} control;
static __thread const char *current_call = "no call";

/* Reports */

static void append(const char *path, const char *format, va_list arguments) {
    FILE *file = path ? fopen(path, "a") : stderr;
    if (!file) return;
    vfprintf(file, format, arguments);
    if (path) fclose(file);
}

static void report(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    append(control.report, format, arguments);
    va_end(arguments);
}

void violation(const char *format, ...) {
    va_list arguments;
    report("violation in call %lu, %s: ", control.calls, current_call);
    va_start(arguments, format);
    append(control.report, format, arguments);
    va_end(arguments);
    report("\n");
    abort();
}

static void log_call(int code) {
    FILE *file = control.log ? fopen(control.log, "a") : NULL;
    if (!file) return;
    fprintf(file, "%lu %s %d\n", control.calls, current_call, code);
    fclose(file);
}

/* Calls */

static void begins(void) __attribute__((constructor));
static void begins(void) {
    char *fail = getenv("SKT_STAND_IN_FAIL");
    control.report = getenv("SKT_STAND_IN_REPORT");
    control.log = getenv("SKT_STAND_IN_LOG");
    if (fail) {
        control.fail_at = strtoul(fail, &fail, 10);
        control.onwards = *fail == '+';
        control.code = atoi(fail + (control.onwards ? 2 : 1));
    }
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *range = mmap(NULL, ADDRESSES, PROT_NONE, flags, -1, 0);
    if (range == MAP_FAILED) abort();
    reserved = (uintptr_t)range;
}

static void drop_queue(void) {
    while (queue) {
        struct work *next = queue->next;
        free(queue);
        queue = next;
    }
}

int call_begins(const char *name, bool may_fail) {
    pthread_mutex_lock(&lock);
    current_call = name;
    if (!may_fail) return 0;
    control.calls++;
    if (!control.fail_at || control.calls < control.fail_at) return 0;
    if (control.calls > control.fail_at && !control.onwards) return 0;
    if (!control.failed) control.failed = name;
    if (strstr(name, "Unregister")) control.overlaps = true;
    if (control.onwards && !control.lost) {
        control.lost = true;
        drop_queue();
    }
    return control.code;
}

int call_ends(int code) {
    log_call(code);
    current_call = "no call";
    pthread_mutex_unlock(&lock);
    return code;
}

/* Handles */

static struct object *object_of(const void *handle) {
    uintptr_t offset = (uintptr_t)handle - reserved;
    if (offset % 16 || offset / 16 >= object_count) return NULL;
    return &objects[offset / 16];
}

void *object_new(enum kind kind, uintptr_t owner) {
    if (object_count == OBJECTS) violation("%d handles were made", OBJECTS);
    struct object *object = &objects[object_count];
    *object = (struct object){.kind = kind, .alive = true, .owner = owner};
    return (void *)(reserved + 16 * object_count++);
}

void object_check(const void *handle, enum kind kind, const char *what) {
    struct object *object = object_of(handle);
    if (!object || object->kind != kind) violation("%p is no %s", handle, what);
    if (!object->alive) violation("the %s is destroyed", what);
}

uintptr_t object_owner(const void *handle) { return object_of(handle)->owner; }

void object_destroy(void *handle, enum kind kind, const char *what) {
    object_check(handle, kind, what);
    object_of(handle)->alive = false;
    for (struct work *work = queue; work; work = work->next)
        if (work->stream == handle) violation("work of the %s is not done", what);
}

/* Memory of the device */

static struct device_range *device_range_of(uintptr_t start, size_t bytes) {
    for (size_t i = 0; i < device_count; i++) {
        struct device_range *range = &devices[i];
        if (start >= range->start && start - range->start <= range->bytes &&
            bytes <= range->bytes - (start - range->start))
            return range;
    }
    violation("%zu bytes from %#lx are not in one allocation of the device", bytes,
              (unsigned long)start);
}

static unsigned char *content(uintptr_t start, size_t bytes) {
    struct device_range *range = device_range_of(start, bytes);
    return range->content + (start - range->start);
}

int device_allocate(uintptr_t *device, size_t bytes) {
    if (!bytes || device_count == RANGES) return INVALID_VALUE;
    struct device_range range = {reserved + addresses_used, bytes, malloc(bytes)};
    if (!range.content) return OUT_OF_MEMORY;
    memset(range.content, 0xE1, bytes);
    addresses_used += (bytes + GAP) / GAP * GAP + GAP;
    devices[device_count++] = range;
    *device = range.start;
    return 0;
}

void device_free(uintptr_t device) {
    struct device_range *range = device_range_of(device, 0);
    if (range->start != device) violation("%#lx is inside an allocation", (unsigned long)device);
    for (struct work *work = queue; work; work = work->next)
        if (work->device >= range->start && work->device < range->start + range->bytes)
            violation("a copy in flight uses the device memory");
    free(range->content);
    *range = devices[--device_count];
}

/* Memory of the host that copies can use directly */

static bool overlaps(uintptr_t a, size_t a_bytes, uintptr_t b, size_t b_bytes) {
    return a < b + b_bytes && b < a + a_bytes;
}

static void host_check_unused(const struct host_range *range) {
    for (struct work *work = queue; work; work = work->next)
        if (overlaps((uintptr_t)work->host, work->bytes, range->start, range->bytes))
            violation("a copy in flight uses the host memory");
}

static struct host_range *host_range_at(const void *start, bool allocated) {
    for (size_t i = 0; i < host_count; i++)
        if (hosts[i].start == (uintptr_t)start && hosts[i].allocated == allocated) return &hosts[i];
    return NULL;
}

static bool is_mapped(uintptr_t start, size_t bytes) {
    unsigned char *pages = malloc(bytes / 4096 + 1);
    bool mapped = mincore((void *)start, bytes, pages) == 0;
    free(pages);
    return mapped;
}

int host_allocate(void **host, size_t bytes) {
    if (!bytes || host_count == RANGES) return INVALID_VALUE;
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return OUT_OF_MEMORY;
    memset(start, 0xC3, bytes);
    hosts[host_count++] = (struct host_range){(uintptr_t)start, bytes, true};
    *host = start;
    return 0;
}

void host_free(void *host) {
    struct host_range *range = host_range_at(host, true);
    if (!range) violation("%p is not allocated", host);
    host_check_unused(range);
    munmap(host, range->bytes);
    *range = hosts[--host_count];
}

int host_register(void *host, size_t bytes) {
    if (!bytes || host_count == RANGES) return INVALID_VALUE;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if ((uintptr_t)host % page || bytes % page)
        violation("%zu bytes from %p are not pages", bytes, host);
    if (!is_mapped((uintptr_t)host, bytes))
        violation("%zu bytes from %p are not mapped", bytes, host);
    for (size_t i = 0; i < host_count; i++) {
        if (!overlaps(hosts[i].start, hosts[i].bytes, (uintptr_t)host, bytes)) continue;
        if (!control.overlaps) violation("%zu bytes from %p are registered in part", bytes, host);
        return ALREADY_REGISTERED;
    }
    hosts[host_count++] = (struct host_range){(uintptr_t)host, bytes, false};
    registrations++;
    return 0;
}

int host_unregister(void *host) {
    struct host_range *range = host_range_at(host, false);
    if (!range) violation("%p is not registered", host);
    host_check_unused(range);
    if (!is_mapped(range->start, range->bytes))
        violation("the registered memory was unmapped before");
    *range = hosts[--host_count];
    return 0;
}

static int host_check_copy(uintptr_t start, size_t bytes) {
    for (size_t i = 0; i < host_count; i++) {
        struct host_range *range = &hosts[i];
        if (!overlaps(start, bytes, range->start, range->bytes)) continue;
        if (start >= range->start && start + bytes <= range->start + range->bytes) continue;
        if (control.overlaps) return INVALID_VALUE;
        violation("%zu bytes from %#lx are pinned only in part", bytes, (unsigned long)start);
    }
    return 0;
}

/* Work of streams */

static void append_work(struct work work) {
    struct work **end = &queue;
    while (*end) end = &(*end)->next;
    *end = malloc(sizeof **end);
    if (!*end) abort();
    work.position = ++position;
    **end = work;
}

int queue_copy(enum direction direction, void *host, uintptr_t device, size_t bytes,
               const void *stream) {
    if (!bytes) return 0;
    device_range_of(device, bytes);
    int code = host_check_copy((uintptr_t)host, bytes);
    if (code) return code;
    if (direction == TO_HOST) memset(host, 0xDB, bytes);
    append_work((struct work){NULL, direction, host, device, bytes, 0, stream, 0});
    return 0;
}

void queue_change(uintptr_t device, size_t bytes, unsigned char with, const void *stream) {
    device_range_of(device, bytes);
    append_work((struct work){NULL, CHANGE, NULL, device, bytes, with, stream, 0});
}

static void perform(const struct work *work) {
    unsigned char *device = content(work->device, work->bytes);
    switch (work->direction) {
    case TO_HOST: memcpy(work->host, device, work->bytes); break;
    case TO_DEVICE: memcpy(device, work->host, work->bytes); break;
    case CHANGE:
        for (size_t i = 0; i < work->bytes; i++) device[i] ^= work->with;
    }
}

static void run_until(const void *stream, unsigned long last) {
    for (struct work **link = &queue; *link;) {
        struct work *work = *link;
        if (work->stream != stream || work->position > last) {
            link = &work->next;
            continue;
        }
        perform(work);
        *link = work->next;
        free(work);
    }
}

void run_stream(const void *stream) { run_until(stream, position); }

void event_record(void *event, const void *stream) {
    struct object *object = object_of(event);
    object->stream = stream;
    object->position = position;
}

void event_wait(void *event) {
    struct object *object = object_of(event);
    if (object->stream) run_until(object->stream, object->position);
}

/* Errors */

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
    {0, "SUCCESS", "no error"},
    {INVALID_VALUE, "INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "NO_DEVICE", "no device is detected"},
    {INVALID_DEVICE, "INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_CONTEXT, "INVALID_CONTEXT", "invalid device context"},
    {INVALID_HANDLE, "INVALID_HANDLE", "invalid resource handle"},
    {ALREADY_REGISTERED, "HOST_MEMORY_ALREADY_REGISTERED", "part of the memory is registered"},
    {NOT_REGISTERED, "HOST_MEMORY_NOT_REGISTERED", "the memory is not registered"},
    {LAUNCH_FAILED, "LAUNCH_FAILED", "unspecified launch failure"},
    {UNKNOWN, "UNKNOWN", "unknown error"},
};

const char *error_name(const char *prefix, int code) {
    static __thread char name[64];
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        if (errors[i].code != code) continue;
        snprintf(name, sizeof name, "%sERROR_%s", prefix, errors[i].name);
        return name;
    }
    return NULL;
}

const char *error_text(int code) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) return errors[i].text;
    return NULL;
}

/* What only programs that know this library call; none of it is counted */

/* Counts calls from 1 again, and fails call `at` (0: none), or all from it on, with `code`. */
EXPORT void stand_in_fail(unsigned long at, int code, int onwards) {
    pthread_mutex_lock(&lock);
    control.calls = 0;
    control.fail_at = at;
    control.code = code;
    control.onwards = onwards;
    control.lost = false;
    control.failed = NULL;
    pthread_mutex_unlock(&lock);
}

/* Calls since the last stand_in_fail. */
EXPORT unsigned long stand_in_calls(void) { return control.calls; }

/* The first call that failed since the last stand_in_fail, or null. */
EXPORT const char *stand_in_failed(void) { return control.failed; }

/* Registering what is registered is an error from now on, and no violation. */
EXPORT void stand_in_allow_overlaps(void) { control.overlaps = true; }

/* Forgets pinned memory and events that could not be given back since the calls for it failed. */
EXPORT void stand_in_forget(void) {
    pthread_mutex_lock(&lock);
    while (host_count) {
        struct host_range *range = &hosts[--host_count];
        if (range->allocated) munmap((void *)range->start, range->bytes);
    }
    for (size_t i = 0; i < object_count; i++)
        if (objects[i].kind == EVENT) objects[i].alive = false;
    control.overlaps = false;
    pthread_mutex_unlock(&lock);
}

/* The bytes of the device, past all queues. */
EXPORT void stand_in_read(void *host, uintptr_t device, size_t bytes) {
    memcpy(host, content(device, bytes), bytes);
}

EXPORT void stand_in_write(uintptr_t device, const void *host, size_t bytes) {
    memcpy(content(device, bytes), host, bytes);
}

/* How often memory was registered. */
EXPORT size_t stand_in_registrations(void) { return registrations; }

static size_t alive_events(void) {
    size_t count = 0;
    for (size_t i = 0; i < object_count; i++) count += objects[i].kind == EVENT && objects[i].alive;
    return count;
}

/* What is left: 0 pinned allocations, 1 registrations, 2 events, 3 work in flight. */
EXPORT size_t stand_in_left(int what) {
    size_t allocated = 0, work = 0;
    for (size_t i = 0; i < host_count; i++) allocated += hosts[i].allocated;
    for (struct work *each = queue; each; each = each->next) work++;
    size_t counts[] = {allocated, host_count - allocated, alive_events(), work};
    return counts[what];
}

static void ends(void) __attribute__((destructor));
static void ends(void) {
    size_t left[4];
    for (int what = 0; what < 4; what++) left[what] = stand_in_left(what);
    if (control.lost || !(left[0] | left[1] | left[2] | left[3])) return;
    report("left: %zu pinned allocations, %zu registrations, %zu events, %zu copies in flight\n",
           left[0], left[1], left[2], left[3]);
}
