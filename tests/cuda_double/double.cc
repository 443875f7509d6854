/* double.cc - the stand-in for a GPU: memory that is closed to the host, streams that wait until
 * they are asked, and a scheduler that runs the threads of a block as fibers. x86-64. */
#include "tests/cuda_double/cuda_runtime.h"
#include <assert.h>
#include <map>
#include <set>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <vector>

static struct cuda_double machine = {1, 13000, 9, 132, (size_t)1 << 30, -1, 0, 0, 0, 0, 0};
extern "C" __attribute__((visibility("default"))) struct cuda_double *cuda_double(void)
{
    return &machine;
}

[[noreturn]] static void die(const char *why)
{
    fprintf(stderr, "cuda_double: %s (block %u,%u,%u thread %u)\n", why, blockIdx.x, blockIdx.y,
            blockIdx.z, threadIdx.x);
    abort();
}

/* ---------------------------------------------------------------- fibers */

dim3 threadIdx, blockIdx, blockDim, gridDim;

extern "C" void double_switch(void **save, void *to);
asm(".text\n"
    "double_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n");

enum { MAX_THREADS = 1024, STACK = 256 << 10, MAX_SHARED = 227 << 10, CANARY = 256 };

struct pending {
    char *dst;
    const char *src;
    bool valid;
    int group;
};
struct fiber {
    void *sp;
    dim3 index;
    const uint64_t *gate; /* runs when *gate != seen */
    uint64_t seen;
    bool done;
    std::vector<pending> copies;
    int groups;
};
struct warp {
    void *operands[32];
    int arrived;
    uint64_t gate;
};
static struct {
    fiber fibers[MAX_THREADS];
    warp warps[MAX_THREADS / 32];
    char *stacks;
    alignas(128) char shared[MAX_SHARED + CANARY];
    void *scheduler;
    std::function<void()> *body;
    uint32_t threads, alive, arrived, current;
    uint64_t gate; /* of __syncthreads() */
} block;

static void yield_until(const uint64_t *gate)
{
    fiber *f = &block.fibers[block.current];
    f->gate = gate, f->seen = *gate;
    double_switch(&f->sp, block.scheduler);
}

static void leave(void)
{
    fiber *f = &block.fibers[block.current];
    f->done = true;
    block.alive--;
    if (block.alive && block.arrived == block.alive) /* those who wait need not wait for it */
        block.arrived = 0, block.gate++;
    double_switch(&f->sp, block.scheduler);
}

static void enter(void)
{
    (*block.body)();
    leave();
    die("a finished thread ran again");
}

void __syncthreads(void)
{
    if (++block.arrived == block.alive)
        block.arrived = 0, block.gate++;
    else
        yield_until(&block.gate);
}

void double_warp(void (*fn)(void *const operands[32]), void *operand)
{
    uint32_t self = block.current, first = self / 32 * 32;
    warp *w = &block.warps[self / 32];
    if (first + 32 > block.threads)
        die("a warp of fewer than 32 threads does something together");
    w->operands[self % 32] = operand;
    if (++w->arrived < 32) {
        yield_until(&w->gate);
        return;
    }
    fn(w->operands);
    w->arrived = 0;
    w->gate++;
}

void *double_dynamic_shared(void) { return block.shared; }

/* ---------------------------------------------------------------- copies to shared memory */

void double_copy_async(void *dst, const void *src, bool valid)
{
    fiber *f = &block.fibers[block.current];
    if ((uintptr_t)dst % 16 || (uintptr_t)src % 16)
        die("a copy that is not aligned");
    memset(dst, 0xff, 16); /* NaN until it has been waited for */
    f->copies.push_back({(char *)dst, (const char *)src, valid, f->groups});
}

void double_copy_commit(void) { block.fibers[block.current].groups++; }

void double_copy_wait(int left)
{
    fiber *f = &block.fibers[block.current];
    size_t kept = 0;
    for (pending &p : f->copies)
        if (p.group >= f->groups - left)
            f->copies[kept++] = p;
        else if (p.valid)
            memcpy(p.dst, p.src, 16);
        else
            memset(p.dst, 0, 16);
    f->copies.resize(kept);
}

/* ---------------------------------------------------------------- a grid */

static void prepare(uint32_t i)
{
    fiber *f = &block.fibers[i];
    void **top = (void **)(block.stacks + (size_t)(i + 1) * STACK);
    *--top = NULL; /* so that enter() finds the stack as after a call */
    *--top = (void *)enter;
    for (int r = 0; r < 6; r++)
        *--top = NULL;
    f->sp = top;
    f->gate = NULL, f->done = false, f->groups = 0;
    f->copies.clear();
    f->index = dim3(i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y);
}

static uint32_t next_random(void)
{
    machine.shuffle = machine.shuffle * 1664525u + 1013904223u;
    return machine.shuffle >> 8;
}

/* The order in which the threads run: theirs, or, to find what relies on it, another each time. */
static void order_of(std::vector<uint32_t> &order)
{
    for (uint32_t i = 0; i < block.threads; i++)
        order[i] = i;
    for (uint32_t i = block.threads - 1; machine.shuffle && i > 0; i--)
        std::swap(order[i], order[next_random() % (i + 1)]);
}

static void run_block(size_t smem)
{
    std::vector<uint32_t> order(block.threads);
    memset(block.shared, 0xff, smem + CANARY);
    memset(block.warps, 0, sizeof(block.warps));
    block.alive = block.threads, block.arrived = 0;
    for (uint32_t i = 0; i < block.threads; i++)
        prepare(i);
    order_of(order);
    while (block.alive) {
        bool ran = false;
        for (uint32_t i : order) {
            fiber *f = &block.fibers[i];
            if (f->done || (f->gate && *f->gate == f->seen))
                continue;
            ran = true;
            f->gate = NULL;
            block.current = i;
            threadIdx = f->index;
            double_switch(&block.scheduler, f->sp);
        }
        if (!ran)
            die("deadlock: some threads wait for others that are gone or wait elsewhere");
    }
    for (size_t i = 0; i < CANARY; i++)
        if ((unsigned char)block.shared[smem + i] != 0xff)
            die("written past the end of shared memory");
}

static void run_grid(dim3 grid, dim3 threads, size_t smem, std::function<void()> &body)
{
    if (!block.stacks) {
        void *p = mmap(NULL, (size_t)MAX_THREADS * STACK, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert(p != MAP_FAILED);
        block.stacks = (char *)p;
    }
    gridDim = grid, blockDim = threads;
    block.threads = threads.x * threads.y * threads.z;
    block.body = &body;
    for (uint32_t z = 0; z < grid.z; z++)
        for (uint32_t y = 0; y < grid.y; y++)
            for (uint32_t x = 0; x < grid.x; x++) {
                blockIdx = dim3(x, y, z);
                run_block(smem);
            }
}

/* ---------------------------------------------------------------- memory */

enum { GAP = 512 };
static struct {
    char *base;
    std::map<char *, size_t> taken;
} device;
static std::map<char *, size_t> pinned; /* by address: bytes */

static void open_memory(bool open)
{
    if (device.base &&
        mprotect(device.base, machine.total, open ? PROT_READ | PROT_WRITE : PROT_NONE))
        die("mprotect");
}

static bool on_device(const void *p)
{
    return device.base && (char *)p >= device.base && (char *)p < device.base + machine.total;
}

extern "C" cudaError_t cudaMalloc(void **p, size_t n)
{
    size_t need = (n + GAP - 1) / GAP * GAP + GAP, at = 0;
    *p = NULL;
    if (machine.fail_after == 0 || machine.used + need > machine.total)
        return cudaErrorMemoryAllocation;
    machine.fail_after -= machine.fail_after > 0;
    if (!device.base) {
        void *all = mmap(NULL, machine.total, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert(all != MAP_FAILED);
        device.base = (char *)all;
    }
    for (auto &t : device.taken) { /* first fit */
        if (device.base + at + need <= t.first)
            break;
        at = (size_t)(t.first - device.base) + (t.second + GAP - 1) / GAP * GAP + GAP;
    }
    if (at + need > machine.total)
        return cudaErrorMemoryAllocation;
    device.taken[device.base + at] = n;
    machine.used += need, machine.allocations++;
    open_memory(true);
    memset(device.base + at, 0xff, need);
    open_memory(false);
    *p = device.base + at;
    return cudaSuccess;
}

static void run_all_streams(void);

extern "C" cudaError_t cudaFree(void *p)
{
    if (!p)
        return cudaSuccess;
    run_all_streams();
    auto t = device.taken.find((char *)p);
    if (t == device.taken.end())
        return cudaErrorInvalidValue;
    size_t n = t->second, need = (n + GAP - 1) / GAP * GAP + GAP;
    open_memory(true);
    for (size_t i = n; i < need; i++)
        if (((unsigned char *)p)[i] != 0xff)
            die("written past the end of an allocation");
    memset(p, 0xff, need);
    open_memory(false);
    device.taken.erase(t);
    machine.used -= need, machine.allocations--;
    return cudaSuccess;
}

extern "C" cudaError_t cudaMallocHost(void **p, size_t n)
{
    *p = aligned_alloc(64, (n + 63) / 64 * 64);
    if (!*p)
        return cudaErrorMemoryAllocation;
    pinned[(char *)*p] = n;
    memset(*p, 0xff, n);
    return cudaSuccess;
}

extern "C" cudaError_t cudaFreeHost(void *p)
{
    if (!p)
        return cudaSuccess;
    run_all_streams();
    if (!pinned.erase((char *)p))
        return cudaErrorInvalidValue;
    free(p);
    return cudaSuccess;
}

extern "C" cudaError_t cudaMemGetInfo(size_t *left, size_t *total)
{
    *left = machine.total - machine.used, *total = machine.total;
    return cudaSuccess;
}

/* ---------------------------------------------------------------- streams */

typedef std::vector<std::function<void()>> work;
struct double_stream {
    work waiting;
    bool capturing;
};
struct double_graph {
    work steps;
    int references;
};
struct double_event {
    cudaStream_t stream;
};
static std::set<cudaStream_t> streams;

static void enqueue(cudaStream_t s, std::function<void()> f) { s->waiting.push_back(std::move(f)); }
void double_enqueue(cudaStream_t s, std::function<void()> f) { enqueue(s, std::move(f)); }

static void run_stream(cudaStream_t s)
{
    work now;
    now.swap(s->waiting);
    open_memory(true);
    for (auto &f : now)
        f();
    open_memory(false);
}

static void run_all_streams(void)
{
    for (cudaStream_t s : streams)
        if (!s->capturing)
            run_stream(s);
}

cudaError_t double_launch(dim3 grid, dim3 threads, size_t smem, cudaStream_t s,
                          std::function<void()> body)
{
    uint32_t n = threads.x * threads.y * threads.z;
    if (!grid.x || !grid.y || !grid.z || grid.y > 65535 || grid.z > 65535 || !n ||
        n > MAX_THREADS || smem > MAX_SHARED)
        return cudaErrorInvalidValue;
    enqueue(s, [=]() mutable {
        machine.launches++;
        run_grid(grid, threads, smem, body);
    });
    return cudaSuccess;
}

extern "C" cudaError_t cudaMemsetAsync(void *p, int v, size_t n, cudaStream_t s)
{
    enqueue(s, [=] { memset(p, v, n); });
    return cudaSuccess;
}

extern "C" cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n,
                                       enum cudaMemcpyKind kind, cudaStream_t s)
{
    return cudaMemcpy2DAsync(dst, n, src, n, n, 1, kind, s);
}

extern "C" cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src,
                                         size_t src_pitch, size_t width, size_t height,
                                         enum cudaMemcpyKind kind, cudaStream_t s)
{
    bool up = kind == cudaMemcpyHostToDevice;
    if (!on_device(up ? dst : src) || on_device(up ? src : dst) || !height)
        return cudaErrorInvalidValue;
    char *host = (char *)const_cast<void *>(up ? src : dst);
    char *end = host + (height - 1) * (up ? src_pitch : dst_pitch) + width;
    auto area = pinned.upper_bound(host);
    if (area == pinned.begin() || end > (--area)->first + area->second)
        return cudaErrorInvalidValue; /* the backend copies through pinned memory only */
    enqueue(s, [=] {
        for (size_t i = 0; i < height; i++)
            memcpy((char *)dst + i * dst_pitch, (const char *)src + i * src_pitch, width);
    });
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    (void)flags;
    streams.insert(*s = new double_stream());
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    run_stream(s);
    streams.erase(s);
    delete s;
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    if (s->capturing)
        return cudaErrorStreamCaptureUnsupported;
    run_stream(s);
    return cudaSuccess;
}

/* Not ready when it is asked for the first time. */
extern "C" cudaError_t cudaStreamQuery(cudaStream_t s)
{
    if (s->waiting.empty())
        return cudaSuccess;
    run_stream(s);
    return cudaErrorNotReady;
}

extern "C" cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
    (void)mode;
    run_stream(s);
    s->capturing = true;
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g)
{
    if (!s->capturing)
        return cudaErrorInvalidValue;
    s->capturing = false;
    *g = new double_graph{{}, 1};
    (*g)->steps.swap(s->waiting);
    return cudaSuccess;
}

static cudaError_t drop(double_graph *g)
{
    if (--g->references == 0)
        delete g;
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long f)
{
    (void)f;
    g->references++;
    *x = g;
    return cudaSuccess;
}
extern "C" cudaError_t cudaGraphDestroy(cudaGraph_t g) { return drop(g); }
extern "C" cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x) { return drop(x); }

extern "C" cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s)
{
    machine.graph_launches++;
    for (auto &f : x->steps)
        enqueue(s, f);
    return cudaSuccess;
}

extern "C" cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    (void)flags;
    *e = new double_event{NULL};
    return cudaSuccess;
}
extern "C" cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    e->stream = s;
    return cudaSuccess;
}
extern "C" cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    return e->stream ? cudaStreamSynchronize(e->stream) : cudaSuccess;
}
extern "C" cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    delete e;
    return cudaSuccess;
}

/* ---------------------------------------------------------------- the device */

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
    default:
        return "error of the double";
    }
}
extern "C" cudaError_t cudaGetLastError(void) { return cudaSuccess; }

/* Environment first, for whole programs that load the double as a plugin. */
static void from_environment(void)
{
    const char *devices = getenv("CUDA_DOUBLE_DEVICES"), *driver = getenv("CUDA_DOUBLE_DRIVER");
    const char *total = getenv("CUDA_DOUBLE_MEMORY");
    machine.devices = devices ? atoi(devices) : machine.devices;
    machine.driver = driver ? atoi(driver) : machine.driver;
    if (total && !device.base)
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
    *p = cudaDeviceProp{"CUDA double (no GPU)", machine.major, 0, machine.sms};
    return cudaSuccess;
}
extern "C" cudaError_t cudaDeviceGetPCIBusId(char *id, int n, int i)
{
    snprintf(id, (size_t)n, "0000:%02x:00.0", 16 + i);
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
