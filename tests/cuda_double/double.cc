/* double.cc - the stand-in for a GPU: what the machine is like. Its blocks run in block.cc, its
 * memory is memory.cc, its streams are stream.cc, what came with Hopper is hopper.cc. */
#include "tests/cuda_double/inside.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct cuda_double machine = {1, 13000, 9, 132, (size_t)1 << 30, -1, 0, false, 0, 0, 0, 0};
extern "C" __attribute__((visibility("default"))) struct cuda_double *cuda_double(void)
{
    return &machine;
}

[[noreturn]] void double_die(const char *why)
{
    fprintf(stderr, "cuda_double: %s (block %u,%u,%u thread %u)\n", why, blockIdx.x, blockIdx.y,
            blockIdx.z, threadIdx.x);
    abort();
}

void double_poll(void) { sched_yield(); }

uint64_t double_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return ((uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec) * 60;
}

extern "C" const char *cudaGetErrorString(cudaError_t rc)
{
    switch (rc) {
    case cudaSuccess:
        return "no error";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInsufficientDriver:
        return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorIllegalAddress:
        return "an illegal memory access was encountered";
    default:
        return "error of the double";
    }
}
extern "C" cudaError_t cudaGetLastError(void) { return cudaSuccess; }

/* CUDA_DOUBLE_LOST: the process that finds this file removes it, and has lost its device. */
bool double_lost(void)
{
    static const char *const file = getenv("CUDA_DOUBLE_LOST");
    static bool lost;
    lost = lost || (file && unlink(file) == 0);
    return lost;
}

/* Environment first, for whole programs that load the double as a plugin. */
static void from_environment(void)
{
    const char *devices = getenv("CUDA_DOUBLE_DEVICES"), *driver = getenv("CUDA_DOUBLE_DRIVER");
    const char *total = getenv("CUDA_DOUBLE_MEMORY");
    machine.devices = devices ? atoi(devices) : machine.devices;
    machine.driver = driver ? atoi(driver) : machine.driver;
    if (total && !machine.used)
        machine.total = strtoul(total, NULL, 0);
}

extern "C" cudaError_t cudaGetDeviceCount(int *n)
{
    from_environment();
    *n = 0;
    if (machine.driver < 13000)
        return cudaErrorInsufficientDriver;
    *n = machine.devices;
    return *n ? cudaSuccess : cudaErrorNoDevice;
}
extern "C" cudaError_t cudaSetDevice(int i)
{
    return i >= 0 && i < machine.devices ? cudaSuccess : cudaErrorInvalidValue;
}
extern "C" cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int i)
{
    (void)i;
    const size_t block = double_most_shared(), all = block + (1 << 10);
    *p = cudaDeviceProp{"CUDA double (no GPU)", machine.major, 0, machine.sms, all, block};
    return cudaSuccess;
}
extern "C" cudaError_t cudaDeviceGetPCIBusId(char *id, int n, int i)
{
    snprintf(id, (size_t)n, "0000:%02x:00.0", 16 + i);
    return cudaSuccess;
}
extern "C" cudaError_t cudaDeviceGetByPCIBusId(int *i, const char *id)
{
    unsigned bus = 0;
    if (sscanf(id, "0000:%x:00.0", &bus) != 1 || bus < 16 || (int)bus >= 16 + machine.devices)
        return cudaErrorInvalidValue;
    *i = (int)bus - 16;
    return cudaSuccess;
}
/* CUDA_DOUBLE_PEERS=0: a machine whose devices do not see each other's memory. */
extern "C" cudaError_t cudaDeviceCanAccessPeer(int *can, int i, int peer)
{
    const char *peers = getenv("CUDA_DOUBLE_PEERS");
    *can = i != peer && (!peers || atoi(peers));
    return cudaSuccess;
}
extern "C" cudaError_t cudaDriverGetVersion(int *v)
{
    from_environment();
    *v = machine.driver;
    return cudaSuccess;
}
extern "C" cudaError_t cudaRuntimeGetVersion(int *v)
{
    *v = 13000;
    return cudaSuccess;
}
