/* A driver of devices that do not exist, and that makes the most of what the rules of CUDA and HIP
 * leave open: see device.c. library.c gives it the names of libcuda or libamdhip64. */
#ifndef STAND_IN_DEVICE_H
#define STAND_IN_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Errors that both libraries number alike; 0 is success. */
enum {
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    LAUNCH_FAILED = 719,
    ALREADY_REGISTERED = 712,
    NOT_REGISTERED = 713,
    UNKNOWN = 999,
};

enum kind { CONTEXT, STREAM, EVENT };
enum direction { TO_HOST, TO_DEVICE, CHANGE };

/* Every function of a library is call_begins, its work unless that returns an error, call_ends.
 * In between the caller holds the lock of all of this. */
int call_begins(const char *name, bool may_fail);
int call_ends(int code);
_Noreturn void violation(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Handles, which are never used again. `owner` is the context or, with HIP, the device. */
void *object_new(enum kind kind, uintptr_t owner);
void object_check(const void *handle, enum kind kind, const char *what);
uintptr_t object_owner(const void *handle);
void object_destroy(void *handle, enum kind kind, const char *what);

/* Queues of work; a stream is a handle or the default one of an owner. */
int queue_copy(enum direction direction, void *host, uintptr_t device, size_t bytes,
               const void *stream);
void queue_change(uintptr_t device, size_t bytes, unsigned char with, const void *stream);
void run_stream(const void *stream);
void event_record(void *event, const void *stream);
void event_wait(void *event);

/* Memory. */
int device_allocate(uintptr_t *device, size_t bytes);
void device_free(uintptr_t device);
int host_allocate(void **host, size_t bytes);
void host_free(void *host);
int host_register(void *host, size_t bytes);
int host_unregister(void *host);

/* Null for a code that is not one of these. */
const char *error_name(const char *prefix, int code);
const char *error_text(int code);

#endif
