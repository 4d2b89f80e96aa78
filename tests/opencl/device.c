/* Prints the name of the OpenCL device that the clients in examples/c take, which is the first of the
 * first platform that has any; otherwise why there is none that they can use. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>

int main(void) {
    cl_platform_id platforms[64];
    cl_device_id device;
    cl_uint count = 0;
    cl_device_fp_config doubles = 0;
    char name[256] = "";
    cl_int code = clGetPlatformIDs(64, platforms, &count);
    if (code != CL_SUCCESS) {
        printf("no OpenCL platform: error %d of clGetPlatformIDs (Debian: pocl-opencl-icd)", (int)code);
        return 1;
    }
    code = CL_DEVICE_NOT_FOUND;
    for (cl_uint n = 0; code != CL_SUCCESS && n < count && n < 64; n++)
        code = clGetDeviceIDs(platforms[n], CL_DEVICE_TYPE_ALL, 1, &device, NULL);
    if (code != CL_SUCCESS) {
        printf("no OpenCL device: error %d of clGetDeviceIDs (Debian: pocl-opencl-icd)",
               (int)code);
        return 1;
    }
    clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name - 1, name, NULL);
    clGetDeviceInfo(device, CL_DEVICE_DOUBLE_FP_CONFIG, sizeof doubles, &doubles, NULL);
    if (doubles == 0) {
        printf("the OpenCL device %s has no double precision", name);
        return 1;
    }
    puts(name);
    return 0;
}
