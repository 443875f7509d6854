/* nccl.cc - the double's NCCL: processes meet in a shared-memory segment named after the unique
 * identifier. Non-blocking like the real one: joining and every call are "in progress" for a while.
 * A rank that does not come in time is an asynchronous error: after CUDA_DOUBLE_NCCL_S seconds, or
 * ten. Aborting while a graph has
 * calls would not end with the real one; here it ends the process. */
#include "tests/cuda_double/nccl.h"
#include "tests/cuda_double/inside.h"
#include <atomic>
#include <fcntl.h>
#include <memory>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <vector>

enum { MAX_WORLD = 8, PIECE = 16384 };

/* From one rank to another: a piece at a time. */
struct mailbox {
    std::atomic<uint64_t> sent, taken; /* pieces */
    float piece[PIECE];
};
struct meeting {
    std::atomic<uint64_t> arrivals;
    float slots[MAX_WORLD][PIECE];
    mailbox mail[MAX_WORLD][MAX_WORLD]; /* from, to */
};
struct double_nccl {
    meeting *m;
    int rank, world, busy;
    uint64_t meetings;
    bool failed;
    std::shared_ptr<int> captured; /* a copy is in each captured call */
};

/* What a call keeps if it is captured. */
static std::shared_ptr<int> capture_of(const double_nccl *c, cudaStream_t s)
{
    return double_capturing(s) ? c->captured : nullptr;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

template <typename READY> static void await(double_nccl *c, READY ready)
{
    static const char *const patience = getenv("CUDA_DOUBLE_NCCL_S");
    const double end = seconds() + (patience ? atof(patience) : 10);
    while (!c->failed && !ready()) {
        c->failed = seconds() > end;
        sched_yield();
    }
}

static void meet(double_nccl *c)
{
    const uint64_t all = ++c->meetings * (uint64_t)c->world;
    c->m->arrivals++;
    await(c, [=] { return c->m->arrivals >= all; });
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
    static int n;                  /* a process may be in several communicators */
    snprintf(id->internal, sizeof(id->internal), "/nccl-double-%d-%d", (int)getpid(), n++);
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
    *c = new double_nccl{(meeting *)m, rank, world, 3, 0, false, std::make_shared<int>(0)};
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
    c->failed = true; /* what waits for other ranks ends */
    double_run_all_streams();
    if (c->captured.use_count() > 1)
        double_die("ncclCommAbort() while graphs have calls of the communicator");
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
    double_enqueue(s, [=, captured = capture_of(c, s)] {
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

static void send_piece(double_nccl *c, const letter &l, size_t at, size_t n)
{
    mailbox *box = &c->m->mail[c->rank][l.peer];
    await(c, [=] { return box->taken == box->sent; });
    memcpy(box->piece, l.in + at, n * sizeof(float));
    box->sent++;
}

static void take_piece(double_nccl *c, const letter &l, size_t at, size_t n)
{
    mailbox *box = &c->m->mail[l.peer][c->rank];
    await(c, [=] { return box->sent > box->taken; });
    memcpy(l.out + at, box->piece, n * sizeof(float));
    box->taken++;
}

/* Letters of a group have one length. */
static ncclResult_t exchange(double_nccl *c, cudaStream_t s, const std::vector<letter> &letters)
{
    c->busy = 2;
    double_enqueue(s, [=, captured = capture_of(c, s)] {
        for (size_t at = 0, len; at < letters[0].n; at += len) {
            len = letters[0].n - at < PIECE ? letters[0].n - at : PIECE;
            for (const letter &l : letters)
                if (l.in)
                    send_piece(c, l, at, len);
            for (const letter &l : letters)
                if (!l.in)
                    take_piece(c, l, at, len);
        }
    });
    return ncclInProgress;
}

static ncclResult_t post(letter l, ncclDataType_t t, ncclComm_t c, cudaStream_t s)
{
    if (t != ncclFloat32 || l.peer < 0 || l.peer >= c->world || l.peer == c->rank)
        return ncclSystemError; /* what the backend does not do */
    if (!group.open)
        return exchange(c, s, {l});
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

EXPORT ncclResult_t ncclGroupEnd(void)
{
    std::vector<letter> letters;
    letters.swap(group.letters);
    group.open = false;
    return letters.empty() ? ncclSuccess : exchange(group.c, group.s, letters);
}

EXPORT const char *ncclGetErrorString(ncclResult_t rc)
{
    return rc == ncclSystemError ? "unhandled system error" : "no error";
}
