/* The CUDA runtime with one H200 whose memory is the host's, by the documentation of the CUDA Runtime API. It launches no
 * kernel: what would is refused with cudaErrorNotSupported, and said. Whatever is not here is in refused.c, made by
 * build.sh. It is the runtime and not the driver below it that is played, because NVIDIA's runtime asks its driver to prove
 * that it is NVIDIA's. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static __thread cudaError_t last;
static int something;

static cudaError_t launch(const char *name) {
    fprintf(stderr, "[the GPU is played: %s was called, where a kernel would launch]\n", name);
    return last = cudaErrorNotSupported;
}

/* Of a missing function, from refused.c. */
cudaError_t played_refusal(const char *name) {
    fprintf(stderr, "[the GPU is played: %s is not there]\n", name);
    return last = cudaErrorNotSupported;
}

cudaError_t cudaGetDeviceCount(int *count) { *count = 1; return cudaSuccess; }
cudaError_t cudaGetDevice(int *device) { *device = 0; return cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return device ? cudaErrorInvalidDevice : cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *version) { *version = CUDART_VERSION; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { *version = CUDART_VERSION; return cudaSuccess; }
cudaError_t cudaDeviceSynchronize(void) { return cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return cudaSuccess; }
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) { *can = 0; return cudaSuccess; }
cudaError_t cudaDeviceGetPCIBusId(char *id, int length, int device) {
    snprintf(id, length, "0000:00:1e.0");
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *found, int device) {
    memset(found, 0, sizeof *found);
    strcpy(found->name, "NVIDIA H200");
    found->totalGlobalMem = (size_t)143771 << 20;
    found->major = 9;
    found->multiProcessorCount = 132;
    found->warpSize = 32;
    found->maxThreadsPerBlock = found->maxThreadsDim[0] = found->maxThreadsDim[1] = 1024;
    found->maxThreadsDim[2] = 64;
    found->maxGridSize[0] = 2147483647;
    found->maxGridSize[1] = found->maxGridSize[2] = 65535;
    found->maxThreadsPerMultiProcessor = 2048;
    found->sharedMemPerBlock = 49152;
    found->sharedMemPerBlockOptin = 232448;
    found->sharedMemPerMultiprocessor = 233472;
    found->regsPerBlock = found->regsPerMultiprocessor = 65536;
    found->l2CacheSize = 60 << 20;
    found->unifiedAddressing = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    struct cudaDeviceProp found;
    cudaGetDeviceProperties(&found, device);
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = found.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = found.minor; break;
    case cudaDevAttrMultiProcessorCount: *value = found.multiProcessorCount; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = found.sharedMemPerBlockOptin; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = found.sharedMemPerMultiprocessor; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = found.maxThreadsPerBlock; break;
    case cudaDevAttrWarpSize: *value = found.warpSize; break;
    default: *value = 0;
    }
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void) { cudaError_t found = last; last = cudaSuccess; return found; }
cudaError_t cudaPeekAtLastError(void) { return last; }
const char *cudaGetErrorString(cudaError_t error) { return error ? "operation not supported" : "no error"; }
const char *cudaGetErrorName(cudaError_t error) { return error ? "cudaErrorNotSupported" : "cudaSuccess"; }

static cudaError_t allocate(void **where, size_t size) {
    return posix_memalign(where, 512, size) ? (last = cudaErrorMemoryAllocation) : cudaSuccess;
}
cudaError_t cudaMalloc(void **where, size_t size) { return allocate(where, size); }
cudaError_t cudaHostAlloc(void **where, size_t size, unsigned flags) { return allocate(where, size); }
cudaError_t cudaMallocHost(void **where, size_t size) { return allocate(where, size); }
cudaError_t cudaFree(void *where) { free(where); return cudaSuccess; }
cudaError_t cudaFreeHost(void *where) { free(where); return cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t *left, size_t *total) {
    *left = (size_t)143000 << 20, *total = (size_t)143771 << 20;
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
    memmove(to, from, size);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream) {
    return cudaMemcpy(to, from, size, kind);
}
cudaError_t cudaMemset(void *where, int value, size_t size) { memset(where, value, size); return cudaSuccess; }
cudaError_t cudaMemsetAsync(void *where, int value, size_t size, cudaStream_t stream) {
    return cudaMemset(where, value, size);
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *found, const void *where) {
    memset(found, 0, sizeof *found);
    found->type = cudaMemoryTypeUnregistered;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    *stream = (cudaStream_t)&something;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) { return cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                     cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
                                     size_t *count) {
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    *event = (cudaEvent_t)&something;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return cudaSuccess; }

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *found, const void *function) {
    memset(found, 0, sizeof *found);
    found->maxThreadsPerBlock = 1024;
    found->binaryVersion = found->ptxVersion = 90;
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value) { return cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int size, size_t shared) {
    *blocks = 1;
    return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                             cudaStream_t stream) {
    return launch("cudaLaunchKernel");
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function, void **arguments) {
    return launch("cudaLaunchKernelExC");
}
cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                                        cudaStream_t stream) {
    return launch("cudaLaunchCooperativeKernel");
}

/* What nvcc writes into each library that has kernels: they are registered when it is loaded. */
void **__cudaRegisterFatBinary(void *binary) { return (void **)&something; }
void __cudaRegisterFatBinaryEnd(void **handle) {}
void __cudaUnregisterFatBinary(void **handle) {}
char __cudaInitModule(void **handle) { return 1; }
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, void *thread,
                            void *block, void *blocks, void *grid, int *size) {}
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int extern_, size_t size, int constant,
                       int global) {}
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function) {
    *kernel = (cudaKernel_t)&something;
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                               cudaStream_t stream) {
    return launch("__cudaLaunchKernel");
}
static __thread struct { dim3 grid, block; size_t shared; void *stream; } pushed;
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
    pushed.grid = grid, pushed.block = block, pushed.shared = shared, pushed.stream = stream;
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    *grid = pushed.grid, *block = pushed.block, *shared = pushed.shared, *(void **)stream = pushed.stream;
    return cudaSuccess;
}
