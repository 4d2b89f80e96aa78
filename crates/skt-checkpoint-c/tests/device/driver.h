/* The calls of CUDA's driver that the programs here make, of a libcuda.so.1 that is loaded when a
 * program runs: they are compiled without the toolkit. Signatures as in cuda.h; names with _v2 are
 * those that it takes for the plain ones. */
#ifndef DRIVER_H
#define DRIVER_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NO_DEVICE = 2 }; /* the exit code without a driver or a device */
enum { NON_BLOCKING = 1 };
enum { HOST_ALLOC_MAPPED = 2, HOST_REGISTER_MAPPED = 2 };
enum { READS_PAGEABLE_MEMORY = 88, USES_PAGE_TABLES_OF_HOST = 100 };
typedef unsigned long long address; /* CUdeviceptr */
typedef void *stream_t;             /* CUstream */

static struct {
    int (*init)(unsigned);
    int (*version)(int *);
    int (*device)(int *, int);
    int (*devices)(int *);
    int (*name)(char *, int, int);
    int (*total)(size_t *, int);
    int (*attribute)(int *, int, int);
    int (*retain)(void **, int);
    int (*release)(int);
    int (*use)(void *);
    int (*error_name)(int, const char **);
    int (*alloc)(address *, size_t);
    int (*free)(address);
    int (*host_alloc)(void **, size_t, unsigned);
    int (*host_free)(void *);
    int (*host_register)(void *, size_t, unsigned);
    int (*host_unregister)(void *);
    int (*device_pointer)(address *, void *, unsigned);
    int (*to_device)(address, const void *, size_t, stream_t);
    int (*to_host)(void *, address, size_t, stream_t);
    int (*within)(address, address, size_t, stream_t);
    int (*stream_create)(stream_t *, unsigned);
    int (*stream_destroy)(stream_t);
    int (*stream_wait)(stream_t);
    int (*load)(void **, const void *);
    int (*function)(void **, void *, const char *);
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  stream_t, void **, void **);
} cu;

static const struct {
    const char *name;
    void *call;
} calls[] = {
    {"cuInit", &cu.init},
    {"cuDriverGetVersion", &cu.version},
    {"cuDeviceGet", &cu.device},
    {"cuDeviceGetCount", &cu.devices},
    {"cuDeviceGetName", &cu.name},
    {"cuDeviceTotalMem_v2", &cu.total},
    {"cuDeviceGetAttribute", &cu.attribute},
    {"cuDevicePrimaryCtxRetain", &cu.retain},
    {"cuDevicePrimaryCtxRelease_v2", &cu.release},
    {"cuCtxSetCurrent", &cu.use},
    {"cuGetErrorName", &cu.error_name},
    {"cuMemAlloc_v2", &cu.alloc},
    {"cuMemFree_v2", &cu.free},
    {"cuMemHostAlloc", &cu.host_alloc},
    {"cuMemFreeHost", &cu.host_free},
    {"cuMemHostRegister_v2", &cu.host_register},
    {"cuMemHostUnregister", &cu.host_unregister},
    {"cuMemHostGetDevicePointer_v2", &cu.device_pointer},
    {"cuMemcpyHtoDAsync_v2", &cu.to_device},
    {"cuMemcpyDtoHAsync_v2", &cu.to_host},
    {"cuMemcpyDtoDAsync_v2", &cu.within},
    {"cuStreamCreate", &cu.stream_create},
    {"cuStreamDestroy_v2", &cu.stream_destroy},
    {"cuStreamSynchronize", &cu.stream_wait},
    {"cuModuleLoadData", &cu.load},
    {"cuModuleGetFunction", &cu.function},
    {"cuLaunchKernel", &cu.launch},
};

/* The name of an error; it stays. */
static inline const char *error_of(int code) {
    const char *name = NULL;
    return cu.error_name(code, &name) == 0 && name != NULL ? name : "unknown error";
}

/* Ends the program where a call has failed. */
#define NEED(call)                                                                     \
    do {                                                                               \
        int code_ = (call);                                                            \
        if (code_ != 0) {                                                              \
            fprintf(stderr, "%s: error %d: %s\n", #call, code_, error_of(code_));      \
            exit(NO_DEVICE);                                                           \
        }                                                                              \
    } while (0)

/* Loads the driver and takes device `place`, counted around, for this process. Returns it. Ends the
 * program with NO_DEVICE and the reason where there is none. */
static inline int take_device(int place) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;
    int device, devices = 0;
    if (library == NULL) {
        fprintf(stderr, "no NVIDIA driver here: %s\n", dlerror());
        exit(NO_DEVICE);
    }
    for (size_t n = 0; n < sizeof calls / sizeof *calls; n++) {
        void *call = dlsym(library, calls[n].name);
        memcpy(calls[n].call, &call, sizeof call);
        if (call == NULL) {
            fprintf(stderr, "libcuda.so.1 has no %s: the driver is too old\n", calls[n].name);
            exit(NO_DEVICE);
        }
    }
    int code = cu.init(0);
    if (code == 0) code = cu.devices(&devices);
    if (code != 0 || devices == 0) {
        fprintf(stderr, "libcuda.so.1 finds no device: error %d: %s\n", code, error_of(code));
        exit(NO_DEVICE);
    }
    NEED(cu.device(&device, place % devices));
    NEED(cu.retain(&context, device));
    NEED(cu.use(context));
    return device;
}

#endif
