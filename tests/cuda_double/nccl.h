/* nccl.h - the double's NCCL: the functions that backend/cuda/nccl.c uses, between processes of
 * one machine. */
#ifndef TESTS_CUDA_DOUBLE_NCCL_H
#define TESTS_CUDA_DOUBLE_NCCL_H
#include "tests/cuda_double/cuda_runtime_api.h"
#ifdef __cplusplus
extern "C" {
#endif
typedef enum { ncclSuccess = 0, ncclSystemError = 2, ncclInProgress = 7 } ncclResult_t;
typedef enum { ncclFloat32 = 7 } ncclDataType_t;
typedef struct double_nccl *ncclComm_t;
typedef struct {
    char internal[128];
} ncclUniqueId;
typedef struct {
    int blocking;
} ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER                                                                    \
    {                                                                                              \
        1                                                                                          \
    }
ncclResult_t ncclGetVersion(int *v);
ncclResult_t ncclSend(const void *in, size_t n, ncclDataType_t t, int peer, ncclComm_t c,
                      cudaStream_t s);
ncclResult_t ncclRecv(void *out, size_t n, ncclDataType_t t, int peer, ncclComm_t c,
                      cudaStream_t s);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *c, int world, ncclUniqueId id, int rank,
                                    ncclConfig_t *config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state);
ncclResult_t ncclCommAbort(ncclComm_t c);
ncclResult_t ncclAllGather(const void *in, void *out, size_t n, ncclDataType_t t, ncclComm_t c,
                           cudaStream_t s);
const char *ncclGetErrorString(ncclResult_t rc);
#ifdef __cplusplus
}
#endif
#endif
