/* libcuda.so.1 or, with -DHIP, libamdhip64 of the devices of device.c: what skt-device calls. A
 * place is what streams and events belong to: a context of CUDA or one of two devices of HIP. */
#include "device.h"

#define API __attribute__((visibility("default")))
/* The handle of the default stream of a thread, which both libraries define. */
#define PER_THREAD_STREAM ((void *)2)

/* The last failure, until the program asks for it. */
static __thread int last_error;

#ifdef HIP
#define NAME(cuda, hip) hip
#define DEVICES 2
static __thread int device_of_thread;
/* The default stream of each device. */
static const char default_streams[DEVICES];
static bool initialized = true;
typedef void *address;

static bool is_default(const void *stream) { return !stream || stream == PER_THREAD_STREAM; }

static uintptr_t here(void) { return (uintptr_t)device_of_thread; }

static const void *default_stream(void) { return &default_streams[device_of_thread]; }
#else
#define NAME(cuda, hip) cuda
#define LEGACY_STREAM ((void *)1)
#define DEPTH 16
static __thread void *stack[DEPTH];
static __thread int depth;
static bool initialized;
typedef unsigned long long address;

static void *current(void) { return depth ? stack[depth - 1] : NULL; }

static bool is_default(const void *stream) {
    return !stream || stream == LEGACY_STREAM || stream == PER_THREAD_STREAM;
}

static uintptr_t here(void) {
    if (!current()) violation("this thread has no context");
    object_check(current(), CONTEXT, "context");
    return (uintptr_t)current();
}

/* That of a context is the context itself. */
static const void *default_stream(void) { return current(); }
#endif

static int ends(int code) {
    if (code) last_error = code;
    return call_ends(code);
}

/* Begins a call, or returns from the function if the call is to fail. */
#define BEGIN(counted)                                                                             \
    do {                                                                                           \
        int code = call_begins(__func__, counted);                                                 \
        if (code) return ends(code);                                                               \
        if (!initialized) return ends(NOT_INITIALIZED);                                            \
    } while (0)
#define BEGIN_HERE(counted)                                                                        \
    BEGIN(counted);                                                                                \
    here()

static const void *stream_of(const void *stream) {
    uintptr_t place = here();
    if (is_default(stream)) return default_stream();
    object_check(stream, STREAM, "stream");
    if (object_owner(stream) != place) violation("the stream is of another context or device");
    return stream;
}

static void check_event(const void *event) {
    uintptr_t place = here();
    object_check(event, EVENT, "event");
    if (object_owner(event) != place) violation("the event is of another context or device");
}

API int NAME(cuInit, hipInit)(unsigned flags) {
    int code = call_begins(__func__, true);
    if (code) return ends(code);
    initialized |= !flags;
    return ends(flags ? INVALID_VALUE : 0);
}

API int NAME(cuStreamSynchronize, hipStreamSynchronize)(void *stream) {
    BEGIN(true);
    run_stream(stream_of(stream));
    return ends(0);
}

API int NAME(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync)(void *host, address device, size_t bytes,
                                                       void *stream) {
    BEGIN(true);
    return ends(queue_copy(TO_HOST, host, (uintptr_t)device, bytes, stream_of(stream)));
}

API int NAME(cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync)(address device, const void *host,
                                                       size_t bytes, void *stream) {
    BEGIN(true);
    return ends(queue_copy(TO_DEVICE, (void *)host, (uintptr_t)device, bytes, stream_of(stream)));
}

API int NAME(cuMemHostAlloc, hipHostMalloc)(void **host, size_t bytes, unsigned flags) {
    BEGIN_HERE(true);
    return ends(flags > 7 ? INVALID_VALUE : host_allocate(host, bytes));
}

API int NAME(cuMemFreeHost, hipHostFree)(void *host) {
    BEGIN_HERE(true);
    host_free(host);
    return ends(0);
}

API int NAME(cuMemHostRegister_v2, hipHostRegister)(void *host, size_t bytes, unsigned flags) {
    BEGIN_HERE(true);
    return ends(flags > 15 ? INVALID_VALUE : host_register(host, bytes));
}

API int NAME(cuMemHostUnregister, hipHostUnregister)(void *host) {
    BEGIN_HERE(true);
    return ends(host_unregister(host));
}

API int NAME(cuEventCreate, hipEventCreateWithFlags)(void **event, unsigned flags) {
    BEGIN_HERE(true);
    if (flags > 7) return ends(INVALID_VALUE);
    *event = object_new(EVENT, here());
    return ends(0);
}

API int NAME(cuEventRecord, hipEventRecord)(void *event, void *stream) {
    BEGIN(true);
    check_event(event);
    event_record(event, stream_of(stream));
    return ends(0);
}

API int NAME(cuEventSynchronize, hipEventSynchronize)(void *event) {
    BEGIN(true);
    check_event(event);
    event_wait(event);
    return ends(0);
}

API int NAME(cuEventDestroy_v2, hipEventDestroy)(void *event) {
    BEGIN(true);
    check_event(event);
    object_destroy(event, EVENT, "event");
    return ends(0);
}

#ifdef HIP
API int hipGetDevice(int *device) {
    BEGIN(true);
    *device = device_of_thread;
    return ends(0);
}

API int hipSetDevice(int device) {
    BEGIN(true);
    if (device < 0 || device >= DEVICES) return ends(INVALID_DEVICE);
    device_of_thread = device;
    return ends(0);
}

API int hipGetDeviceCount(int *count) {
    BEGIN(true);
    *count = DEVICES;
    return ends(0);
}

API int hipPeekAtLastError(void) { return last_error; }

API int hipGetLastError(void) {
    int code = last_error;
    last_error = 0;
    return code;
}

API const char *hipGetErrorName(int code) {
    const char *name = error_name("hip", code);
    return name ? name : "hipErrorUnknown";
}

API const char *hipGetErrorString(int code) {
    const char *text = error_text(code);
    return text ? text : "unknown error";
}
#else
API int cuCtxGetCurrent(void **context) {
    BEGIN(true);
    *context = current();
    return ends(0);
}

API int cuCtxPushCurrent_v2(void *context) {
    BEGIN(true);
    object_check(context, CONTEXT, "context");
    if (depth == DEPTH) violation("%d contexts are pushed", DEPTH);
    stack[depth++] = context;
    return ends(0);
}

API int cuCtxPopCurrent_v2(void **context) {
    BEGIN(true);
    if (!depth) violation("no context is pushed");
    void *popped = stack[--depth];
    if (context) *context = popped;
    return ends(0);
}

API int cuStreamGetCtx(void *stream, void **context) {
    BEGIN(true);
    if (is_default(stream)) {
        *context = current();
        return ends(current() ? 0 : INVALID_CONTEXT);
    }
    object_check(stream, STREAM, "stream");
    *context = (void *)object_owner(stream);
    return ends(0);
}

API int cuGetErrorName(int code, const char **name) {
    *name = error_name("CUDA_", code);
    return *name ? 0 : INVALID_VALUE;
}

API int cuGetErrorString(int code, const char **text) {
    *text = error_text(code);
    return *text ? 0 : INVALID_VALUE;
}
#endif

/* For programs that know this library; none of it is counted among the calls. */

/* Makes another context, or the other device, the current one of this thread. */
API void stand_in_switch(void) {
    call_begins(__func__, false);
#ifdef HIP
    device_of_thread = 1 - device_of_thread;
#else
    initialized = true;
    if (depth == DEPTH) violation("%d contexts are pushed", DEPTH);
    stack[depth++] = object_new(CONTEXT, 0);
#endif
    call_ends(0);
}

/* The number of contexts in the stack of this thread, or its device. */
API int stand_in_current(void) { return NAME(depth, device_of_thread); }

/* Removes contexts from the stack until there are so many, or sets the device. */
API void stand_in_restore(int place) { NAME(depth, device_of_thread) = place; }

/* What HIP keeps of failures for the program to ask for; of CUDA there is nothing. */
API int stand_in_last_error(void) { return NAME(0, last_error); }

API void *stand_in_stream(void) {
    call_begins(__func__, false);
    void *stream = object_new(STREAM, here());
    call_ends(0);
    return stream;
}

/* Memory of the device, or 0. */
API uintptr_t stand_in_allocate(size_t bytes) {
    uintptr_t device = 0;
    call_begins(__func__, false);
    return call_ends(device_allocate(&device, bytes)) ? 0 : device;
}

API void stand_in_free(uintptr_t device) {
    call_begins(__func__, false);
    device_free(device);
    call_ends(0);
}

/* A kernel: each byte is combined with another. */
API int stand_in_change(uintptr_t device, size_t bytes, unsigned char with, void *stream) {
    BEGIN(false);
    queue_change(device, bytes, with, stream_of(stream));
    return ends(0);
}
