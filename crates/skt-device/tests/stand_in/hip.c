/* libamdhip64 of the devices of device.c: what skt-device calls, and what its tests need to make
 * streams and device memory, which is not counted among the calls. There are two devices. */
#include "device.h"

#define API __attribute__((visibility("default")))
#define DEVICES 2

static __thread int current;
/* The last failure, until the program asks for it. */
static __thread int last_error;
/* The default stream of each device. */
static const char default_streams[DEVICES];

static int ends(int code) {
    if (code) last_error = code;
    return call_ends(code);
}

#define BEGIN(counted)                                                                             \
    do {                                                                                           \
        int code = call_begins(__func__, counted);                                                 \
        if (code) return ends(code);                                                               \
    } while (0)

/* The handle of the default stream of a thread, which HIP defines. */
#define PER_THREAD_STREAM ((void *)2)

static const void *stream_of(const void *stream) {
    if (!stream || stream == PER_THREAD_STREAM) return &default_streams[current];
    object_check(stream, STREAM, "stream");
    if (object_owner(stream) != (uintptr_t)current) violation("the stream is of another device");
    return stream;
}

static void check_event(const void *event) {
    object_check(event, EVENT, "event");
    if (object_owner(event) != (uintptr_t)current) violation("the event is of another device");
}

API int hipInit(unsigned flags) {
    BEGIN(true);
    return ends(flags ? INVALID_VALUE : 0);
}

API int hipGetDevice(int *device) {
    BEGIN(true);
    *device = current;
    return ends(0);
}

API int hipSetDevice(int device) {
    BEGIN(true);
    if (device < 0 || device >= DEVICES) return ends(INVALID_DEVICE);
    current = device;
    return ends(0);
}

API int hipGetDeviceCount(int *count) {
    BEGIN(true);
    *count = DEVICES;
    return ends(0);
}

API int hipStreamSynchronize(void *stream) {
    BEGIN(true);
    run_stream(stream_of(stream));
    return ends(0);
}

API int hipMemcpyDtoHAsync(void *host, void *device, size_t bytes, void *stream) {
    BEGIN(true);
    return ends(queue_copy(TO_HOST, host, (uintptr_t)device, bytes, stream_of(stream)));
}

API int hipMemcpyHtoDAsync(void *device, void *host, size_t bytes, void *stream) {
    BEGIN(true);
    return ends(queue_copy(TO_DEVICE, host, (uintptr_t)device, bytes, stream_of(stream)));
}

API int hipHostMalloc(void **host, size_t bytes, unsigned flags) {
    (void)flags;
    BEGIN(true);
    return ends(host_allocate(host, bytes));
}

API int hipHostFree(void *host) {
    BEGIN(true);
    host_free(host);
    return ends(0);
}

API int hipHostRegister(void *host, size_t bytes, unsigned flags) {
    BEGIN(true);
    return ends(flags > 15 ? INVALID_VALUE : host_register(host, bytes));
}

API int hipHostUnregister(void *host) {
    BEGIN(true);
    return ends(host_unregister(host));
}

API int hipEventCreateWithFlags(void **event, unsigned flags) {
    (void)flags;
    BEGIN(true);
    *event = object_new(EVENT, (uintptr_t)current);
    return ends(0);
}

API int hipEventRecord(void *event, void *stream) {
    BEGIN(true);
    check_event(event);
    event_record(event, stream_of(stream));
    return ends(0);
}

API int hipEventSynchronize(void *event) {
    BEGIN(true);
    check_event(event);
    event_wait(event);
    return ends(0);
}

API int hipEventDestroy(void *event) {
    BEGIN(true);
    check_event(event);
    object_destroy(event, EVENT, "event");
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

/* For the tests' own use */

API int hipStreamCreate(void **stream) {
    BEGIN(false);
    *stream = object_new(STREAM, (uintptr_t)current);
    return ends(0);
}

API int hipStreamDestroy(void *stream) {
    BEGIN(false);
    object_destroy(stream, STREAM, "stream");
    return ends(0);
}

API int hipMalloc(void **device, size_t bytes) {
    BEGIN(false);
    uintptr_t start = 0;
    int code = device_allocate(&start, bytes);
    *device = (void *)start;
    return ends(code);
}

API int hipFree(void *device) {
    BEGIN(false);
    device_free((uintptr_t)device);
    return ends(0);
}

/* A kernel: each byte is combined with another. */
API int stand_in_change(void *device, size_t bytes, unsigned char with, void *stream) {
    BEGIN(false);
    queue_change((uintptr_t)device, bytes, with, stream_of(stream));
    return ends(0);
}

/* The device of this thread. */
API int stand_in_current(void) { return current; }

API void stand_in_restore(int device) { current = device; }
