/* The driver as far as torch and vLLM ask it by themselves, by the documentation of the CUDA Driver API. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

int played_refusal(const char *name) {
    fprintf(stderr, "[the GPU is played: %s is not there]\n", name);
    return 801;
}
int cuInit(unsigned flags) { return 0; }
int cuGetErrorString(int error, const char **text) { *text = error ? "operation not supported" : "no error"; return 0; }
int cuGetErrorName(int error, const char **text) { *text = error ? "CUDA_ERROR_NOT_SUPPORTED" : "CUDA_SUCCESS"; return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int index) { *device = 0; return index ? 101 : 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { *flags = 0, *active = 1; return 0; }
int cuCtxGetCurrent(void **context) { *context = NULL; return 0; }
