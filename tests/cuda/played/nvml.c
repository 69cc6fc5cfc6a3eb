/* NVML with one H200, by the documentation of the NVML API; what is not here, or may not be, is "not supported" (3). */
#include <stdio.h>
#include <string.h>

typedef struct { unsigned long long total, left, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, left, used; } Memory2;
static int handle;

int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int error) { return error == 3 ? "Not Supported" : "Played"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "580.95.05"); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = &handle; return index ? 2 : 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    *device = &handle;
    return strcmp(uuid, "GPU-11111111-2222-3333-4444-555555555555") ? 6 : 0;
}
int nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
    snprintf(text, size, "GPU-11111111-2222-3333-4444-555555555555");
    return 0;
}
int nvmlDeviceGetIndex(void *device, unsigned *index) { *index = 0; return 0; }
int nvmlDeviceGetName(void *device, char *text, unsigned size) { snprintf(text, size, "NVIDIA H200"); return 0; }
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) { *major = 9, *minor = 0; return 0; }
int nvmlDeviceGetMemoryInfo(void *device, Memory *found) {
    found->total = 143771ull << 20, found->left = 143000ull << 20, found->used = 771ull << 20;
    return 0;
}
int nvmlDeviceGetMemoryInfo_v2(void *device, Memory2 *found) {
    found->total = 143771ull << 20, found->reserved = 0, found->left = 143000ull << 20, found->used = 771ull << 20;
    return 0;
}
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *pending) { return 3; }
int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, unsigned long long *count) { return 3; }
int nvmlDeviceGetRetiredPagesPendingStatus(void *device, int *pending) { return 3; }
int nvmlDeviceGetRemappedRows(void *device, unsigned *a, unsigned *b, unsigned *c, unsigned *d) { return 3; }
int nvmlEventSetCreate(void **set) { return 3; }
int nvmlDeviceGetNumaNodeId(void *device, unsigned *node) { return 3; }
