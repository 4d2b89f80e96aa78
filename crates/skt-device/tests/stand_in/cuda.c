/* libcuda.so.1 of the devices of device.c: what skt-device calls, and what its tests need to make
 * contexts, streams and device memory, which is not counted among the calls. */
#include "device.h"

#define API __attribute__((visibility("default")))
#define DEPTH 16
/* Handles of default streams that CUDA defines. */
#define LEGACY_STREAM ((void *)1)
#define PER_THREAD_STREAM ((void *)2)

static bool initialized;
static __thread void *stack[DEPTH];
static __thread int depth;

static void *current(void) { return depth ? stack[depth - 1] : NULL; }

/* Begins a call, or returns from the function if the call is to fail. */
#define BEGIN(name, counted)                                                                       \
    do {                                                                                           \
        int code = call_begins(name, counted);                                                     \
        if (code) return call_ends(code);                                                          \
        if (!initialized) return call_ends(NOT_INITIALIZED);                                       \
    } while (0)
#define BEGIN_WITH_CONTEXT(counted)                                                                \
    BEGIN(__func__, counted);                                                                      \
    need_context()

static void need_context(void) {
    if (!current()) violation("this thread has no context");
    object_check(current(), CONTEXT, "context");
}

/* The stream, where the default one of a context is the context itself. */
static const void *stream_of(const void *stream) {
    need_context();
    if (!stream || stream == LEGACY_STREAM || stream == PER_THREAD_STREAM) return current();
    object_check(stream, STREAM, "stream");
    if (object_owner(stream) != (uintptr_t)current()) violation("the stream is of another context");
    return stream;
}

static void check_event(const void *event) {
    need_context();
    object_check(event, EVENT, "event");
    if (object_owner(event) != (uintptr_t)current()) violation("the event is of another context");
}

API int cuInit(unsigned flags) {
    int code = call_begins(__func__, true);
    if (code) return call_ends(code);
    initialized |= !flags;
    return call_ends(flags ? INVALID_VALUE : 0);
}

API int cuCtxGetCurrent(void **context) {
    BEGIN(__func__, true);
    *context = current();
    return call_ends(0);
}

API int cuCtxPushCurrent_v2(void *context) {
    BEGIN(__func__, true);
    object_check(context, CONTEXT, "context");
    if (depth == DEPTH) violation("%d contexts are pushed", DEPTH);
    stack[depth++] = context;
    return call_ends(0);
}

API int cuCtxPopCurrent_v2(void **context) {
    BEGIN(__func__, true);
    if (!depth) violation("no context is pushed");
    void *popped = stack[--depth];
    if (context) *context = popped;
    return call_ends(0);
}

API int cuStreamGetCtx(void *stream, void **context) {
    BEGIN(__func__, true);
    if (!stream || stream == LEGACY_STREAM || stream == PER_THREAD_STREAM) {
        *context = current();
        return call_ends(current() ? 0 : INVALID_CONTEXT);
    }
    object_check(stream, STREAM, "stream");
    *context = (void *)object_owner(stream);
    return call_ends(0);
}

API int cuStreamSynchronize(void *stream) {
    BEGIN(__func__, true);
    run_stream(stream_of(stream));
    return call_ends(0);
}

API int cuMemcpyDtoHAsync_v2(void *host, unsigned long long device, size_t bytes, void *stream) {
    BEGIN(__func__, true);
    return call_ends(queue_copy(TO_HOST, host, device, bytes, stream_of(stream)));
}

API int cuMemcpyHtoDAsync_v2(unsigned long long device, const void *host, size_t bytes,
                             void *stream) {
    BEGIN(__func__, true);
    return call_ends(queue_copy(TO_DEVICE, (void *)host, device, bytes, stream_of(stream)));
}

API int cuMemHostAlloc(void **host, size_t bytes, unsigned flags) {
    BEGIN_WITH_CONTEXT(true);
    return call_ends(flags > 7 ? INVALID_VALUE : host_allocate(host, bytes));
}

API int cuMemFreeHost(void *host) {
    BEGIN_WITH_CONTEXT(true);
    host_free(host);
    return call_ends(0);
}

API int cuMemHostRegister_v2(void *host, size_t bytes, unsigned flags) {
    BEGIN_WITH_CONTEXT(true);
    return call_ends(flags > 15 ? INVALID_VALUE : host_register(host, bytes));
}

API int cuMemHostUnregister(void *host) {
    BEGIN_WITH_CONTEXT(true);
    return call_ends(host_unregister(host));
}

API int cuEventCreate(void **event, unsigned flags) {
    BEGIN_WITH_CONTEXT(true);
    if (flags > 7) return call_ends(INVALID_VALUE);
    *event = object_new(EVENT, (uintptr_t)current());
    return call_ends(0);
}

API int cuEventRecord(void *event, void *stream) {
    BEGIN(__func__, true);
    check_event(event);
    event_record(event, stream_of(stream));
    return call_ends(0);
}

API int cuEventSynchronize(void *event) {
    BEGIN(__func__, true);
    check_event(event);
    event_wait(event);
    return call_ends(0);
}

API int cuEventDestroy_v2(void *event) {
    BEGIN(__func__, true);
    check_event(event);
    object_destroy(event, EVENT, "event");
    return call_ends(0);
}

API int cuGetErrorName(int code, const char **name) {
    *name = error_name("CUDA_", code);
    return *name ? 0 : INVALID_VALUE;
}

API int cuGetErrorString(int code, const char **text) {
    *text = error_text(code);
    return *text ? 0 : INVALID_VALUE;
}

/* For the tests' own use */

API int cuCtxCreate_v2(void **context, unsigned flags, int device) {
    BEGIN(__func__, false);
    if (flags || device) return call_ends(INVALID_VALUE);
    if (depth == DEPTH) violation("%d contexts are pushed", DEPTH);
    stack[depth++] = *context = object_new(CONTEXT, 0);
    return call_ends(0);
}

API int cuCtxDestroy_v2(void *context) {
    BEGIN(__func__, false);
    object_destroy(context, CONTEXT, "context");
    objects_of_owner_end((uintptr_t)context);
    if (current() == context) depth--;
    return call_ends(0);
}

API int cuStreamCreate(void **stream, unsigned flags) {
    BEGIN_WITH_CONTEXT(false);
    if (flags > 1) return call_ends(INVALID_VALUE);
    *stream = object_new(STREAM, (uintptr_t)current());
    return call_ends(0);
}

API int cuStreamDestroy_v2(void *stream) {
    BEGIN_WITH_CONTEXT(false);
    object_destroy(stream, STREAM, "stream");
    return call_ends(0);
}

API int cuMemAlloc_v2(unsigned long long *device, size_t bytes) {
    BEGIN_WITH_CONTEXT(false);
    uintptr_t start = 0;
    int code = device_allocate(&start, bytes);
    *device = start;
    return call_ends(code);
}

API int cuMemFree_v2(unsigned long long device) {
    BEGIN_WITH_CONTEXT(false);
    device_free(device);
    return call_ends(0);
}

/* A kernel: each byte is combined with another. */
API int stand_in_change(unsigned long long device, size_t bytes, unsigned char with, void *stream) {
    BEGIN(__func__, false);
    queue_change(device, bytes, with, stream_of(stream));
    return call_ends(0);
}

/* The number of contexts in the stack of this thread. */
API int stand_in_current(void) { return depth; }

API void stand_in_restore(int contexts) {
    if (contexts < depth) depth = contexts;
}
