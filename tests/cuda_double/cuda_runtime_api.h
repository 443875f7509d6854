/* cuda_runtime_api.h - a CPU instead of a GPU, for tests: the calls of the CUDA runtime that the
 * backend makes, with the same names and meanings.
 *
 * Work on a stream runs only when the stream is synchronised, as late as CUDA allows; copies from
 * pinned memory read it then. Device memory cannot be accessed outside of such work: it is
 * unmapped. Unwritten memory contains NaN. So a host that accesses device memory, reads too early
 * or reuses a buffer too soon fails here too. One thread. */
#ifndef TESTS_CUDA_DOUBLE_CUDA_RUNTIME_API_H
#define TESTS_CUDA_DOUBLE_CUDA_RUNTIME_API_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#define __host__
#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorUnknown = 999,
} cudaError_t;
const char *cudaGetErrorString(cudaError_t rc);
cudaError_t cudaGetLastError(void);

typedef struct double_stream *cudaStream_t;
typedef struct double_event *cudaEvent_t;
typedef struct double_graph *cudaGraph_t;
typedef struct double_graph *cudaGraphExec_t;
enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3
};
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
enum cudaDriverEntryPointQueryResult {
    cudaDriverEntryPointSuccess = 0,
    cudaDriverEntryPointSymbolNotFound = 1,
};
enum { cudaEnableDefault = 0 };
enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2 };
enum { cudaIpcMemLazyEnablePeerAccess = 1 };
typedef struct {
    char reserved[64];
} cudaIpcMemHandle_t;
struct cudaDeviceProp {
    char name[256];
    int major, minor, multiProcessorCount;
    size_t sharedMemPerMultiprocessor, sharedMemPerBlockOptin;
};

cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaSetDevice(int i);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int i);
cudaError_t cudaDeviceGetPCIBusId(char *id, int n, int i);
cudaError_t cudaDeviceGetByPCIBusId(int *i, const char *id);
cudaError_t cudaDeviceCanAccessPeer(int *can, int i, int peer);
cudaError_t cudaDriverGetVersion(int *v);
cudaError_t cudaRuntimeGetVersion(int *v);
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **f, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *is);
cudaError_t cudaMemGetInfo(size_t *left, size_t *total);
cudaError_t cudaMalloc(void **p, size_t n);
cudaError_t cudaFree(void *p);
cudaError_t cudaMallocHost(void **p, size_t n);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *h, void *p);
cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t h, unsigned flags);
cudaError_t cudaIpcCloseMemHandle(void *p);
cudaError_t cudaMemsetAsync(void *p, int v, size_t n, cudaStream_t s);
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind,
                            cudaStream_t s);
cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t s);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamQuery(cudaStream_t s);
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s);
cudaError_t cudaGraphDestroy(cudaGraph_t g);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaEventQuery(cudaEvent_t e);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaEventDestroy(cudaEvent_t e);

/* Properties of the machine and counts of events, for the tests. */
struct cuda_double {
    int devices, driver, major, sms;
    size_t total;             /* bytes of device memory; set before the first allocation */
    int fail_after;           /* allocations that still succeed; -1: all */
    uint32_t shuffle;         /* not 0: seed of the order of blocks and threads */
    bool early;               /* kernels start as early as they may: see inside.h */
    bool wgmma_truncates;     /* its sums are not rounded as those of mma.sync */
    size_t used, allocations; /* now */
    uint64_t launches, graph_launches, wgmmas; /* totals */
    int graphs_fail;                           /* so many of the next ones have no memory */
    bool idle;                                 /* launches are checked, and do nothing */
};
struct cuda_double *cuda_double(void);
#ifdef __cplusplus
}
#endif
#endif
