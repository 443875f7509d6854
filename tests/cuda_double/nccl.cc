/* nccl.cc - the double's NCCL: processes meet in a shared-memory segment named after the unique
 * identifier. Non-blocking like the real one: joining and every call are "in progress" for a while.
 * A rank that does not come within two seconds is an asynchronous error. */
#include "tests/cuda_double/nccl.h"
#include "tests/cuda_double/cuda_runtime.h"
#include <atomic>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <vector>

enum { MAX_WORLD = 8, PIECE = 16384 };

struct meeting {
    std::atomic<uint64_t> arrivals;
    float slots[MAX_WORLD][PIECE];
    float mail[MAX_WORLD][MAX_WORLD][PIECE]; /* from, to */
};
struct double_nccl {
    meeting *m;
    int rank, world, busy;
    uint64_t meetings;
    bool failed;
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void meet(double_nccl *c)
{
    uint64_t all = ++c->meetings * (uint64_t)c->world;
    double end = seconds() + 2;
    c->m->arrivals++;
    while (!c->failed && c->m->arrivals < all) {
        c->failed = seconds() > end;
        sched_yield();
    }
}

#define EXPORT extern "C" __attribute__((visibility("default")))

/* CUDA_DOUBLE_NCCL: another version. */
EXPORT ncclResult_t ncclGetVersion(int *v)
{
    const char *version = getenv("CUDA_DOUBLE_NCCL");
    *v = version ? atoi(version) : 22809;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id, 0xfe, sizeof(*id)); /* opaque bytes, not all of them text */
    snprintf(id->internal, sizeof(id->internal), "/nccl-double-%d", (int)getpid());
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *c, int world, ncclUniqueId id, int rank,
                                           ncclConfig_t *config)
{
    int fd = shm_open(id.internal, O_RDWR | O_CREAT, 0600);
    if (config->blocking || fd < 0 || world > MAX_WORLD || ftruncate(fd, sizeof(meeting)))
        return ncclSystemError;
    void *m = mmap(NULL, sizeof(meeting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (m == MAP_FAILED)
        return ncclSystemError;
    *c = new double_nccl{(meeting *)m, rank, world, 3, 0, false};
    meet(*c);
    shm_unlink(id.internal);
    return ncclInProgress;
}

EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state)
{
    *state = c->failed ? ncclSystemError : c->busy-- > 0 ? ncclInProgress : ncclSuccess;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommAbort(ncclComm_t c)
{
    munmap(c->m, sizeof(meeting));
    delete c;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclAllGather(const void *in, void *out, size_t n, ncclDataType_t t,
                                  ncclComm_t c, cudaStream_t s)
{
    if (t != ncclFloat32)
        return ncclSystemError;
    c->busy = 2;
    double_enqueue(s, [=] {
        for (size_t at = 0, len; at < n; at += len) {
            len = n - at < PIECE ? n - at : PIECE;
            memcpy(c->m->slots[c->rank], (const float *)in + at, len * sizeof(float));
            meet(c);
            for (int r = 0; r < c->world; r++)
                memcpy((float *)out + (size_t)r * n + at, c->m->slots[r], len * sizeof(float));
            meet(c);
        }
    });
    return ncclInProgress;
}

/* ---------------------------------------------------------------- sending and receiving */

struct letter {
    const float *in; /* NULL: it is received */
    float *out;
    size_t n;
    int peer;
};
static struct {
    bool open;
    double_nccl *c;
    cudaStream_t s;
    std::vector<letter> letters;
} group;

static ncclResult_t post(letter l, ncclDataType_t t, ncclComm_t c, cudaStream_t s)
{
    if (!group.open || t != ncclFloat32 || l.peer < 0 || l.peer >= c->world || l.peer == c->rank)
        return ncclSystemError; /* what the backend does not do */
    group.c = c, group.s = s;
    group.letters.push_back(l);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclSend(const void *in, size_t n, ncclDataType_t t, int peer, ncclComm_t c,
                             cudaStream_t s)
{
    return post({(const float *)in, NULL, n, peer}, t, c, s);
}

EXPORT ncclResult_t ncclRecv(void *out, size_t n, ncclDataType_t t, int peer, ncclComm_t c,
                             cudaStream_t s)
{
    return post({NULL, (float *)out, n, peer}, t, c, s);
}

EXPORT ncclResult_t ncclGroupStart(void)
{
    group.open = true;
    return ncclSuccess;
}

/* All letters have one length: everybody goes through the same pieces. */
EXPORT ncclResult_t ncclGroupEnd(void)
{
    std::vector<letter> letters;
    double_nccl *c = group.c;
    letters.swap(group.letters);
    group.open = false;
    if (letters.empty())
        return ncclSuccess;
    c->busy = 2;
    double_enqueue(group.s, [=] {
        for (size_t at = 0, len; at < letters[0].n; at += len) {
            len = letters[0].n - at < PIECE ? letters[0].n - at : PIECE;
            for (const letter &l : letters)
                if (l.in)
                    memcpy(c->m->mail[c->rank][l.peer], l.in + at, len * sizeof(float));
            meet(c);
            for (const letter &l : letters)
                if (!l.in)
                    memcpy(l.out + at, c->m->mail[l.peer][c->rank], len * sizeof(float));
            meet(c);
        }
    });
    return ncclInProgress;
}

EXPORT const char *ncclGetErrorString(ncclResult_t rc)
{
    return rc == ncclSystemError ? "unhandled system error" : "no error";
}
