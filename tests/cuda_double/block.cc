/* block.cc - how a grid runs: the threads of a block, or of a cluster of blocks, are fibers, and a
 * scheduler lets each go on when what it waits for has come. x86-64. */
#include "tests/cuda_double/inside.h"
#include <assert.h>
#include <sys/mman.h>
#include <vector>
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#endif

/* ---------------------------------------------------------------- fibers */

dim3 threadIdx, blockIdx, blockDim, gridDim;

extern "C" void double_switch(void **save, void *to);
asm(".text\n"
    "double_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n");

enum {
    MAX_THREADS = 1024,
    MAX_CLUSTER = 8,
    MAX_FIBERS = 4 * MAX_THREADS, /* of a cluster */
    STACK = 64 << 10, /* the deepest kernel uses 23 KiB */
    /* Stacks a power of two apart share few sets of the caches and evict each other: their tops
     * are shifted. */
    COLOURS = 61,
    COLOUR = 5 * 64,
    PREFETCH = 6, /* lines of a stack */
    MAX_SHARED = 227 << 10,
    CANARY = 256,
    SHARED_FROM = 384
};

struct pending {
    char *dst;
    const char *src;
    size_t bytes;
    bool valid;
    int group;
};
struct fiber {
    void *sp;
    dim3 index;
    uint32_t block; /* of its cluster */
    std::vector<pending> copies;
    int groups;
    bool waited; /* for the kernel before */
};
/* A fiber runs when *gate != seen. Apart from fibers, because a sweep reads those of all. */
struct wait {
    const uint64_t *gate;
    uint64_t seen;
};
static const uint64_t always = 1,
                      never = 0; /* gates of a fiber that begins, and of one that is done */
/* Threads in a row that do something together: a warp, a warpgroup. */
template <int N> struct team {
    void *operands[N];
    int arrived;
    uint64_t gate;
};
/* Who meets at a barrier. */
struct barrier {
    uint32_t alive, arrived;
    uint64_t gate;
};
/* The blocks of a cluster run together; without clusters, that is one. */
static struct {
    fiber fibers[MAX_FIBERS];
    wait waits[MAX_FIBERS];
    /* A sweep resumes each fiber that can run once, in this order. */
    std::vector<uint32_t> order;
    size_t at;
    bool ran; /* one of them, in this sweep */
    team<32> warps[MAX_FIBERS / 32];
    team<128> warpgroups[MAX_FIBERS / 128];
    char *stacks;
    struct {
        alignas(128) char shared[MAX_SHARED + CANARY];
        barrier sync; /* of __syncthreads() */
        dim3 index;
    } block[MAX_CLUSTER];
    barrier sync; /* of the cluster */
    void *scheduler;
    std::function<void()> *body;
    uint32_t threads, blocks, current; /* threads: of a block */
    size_t smem;
} cluster;

static uint32_t own_block(void) { return cluster.fibers[cluster.current].block; }
static char *own_shared(void) { return cluster.block[own_block()].shared; }

static uint32_t next_random(void)
{
    machine.shuffle = machine.shuffle * 1664525u + 1013904223u;
    return machine.shuffle >> 8;
}

/* The next fiber that can run becomes the current one; false when all are done. */
static bool choose(void)
{
    for (; cluster.sync.alive; cluster.at = 0, cluster.ran = false) {
        while (cluster.at < cluster.order.size()) {
            uint32_t i = cluster.order[cluster.at++];
            const wait *w = &cluster.waits[i];
            if (*w->gate == w->seen)
                continue;
            fiber *f = &cluster.fibers[i];
            cluster.ran = true;
            cluster.current = i;
            threadIdx = f->index;
            blockIdx = cluster.block[f->block].index;
            return true;
        }
        if (machine.shuffle && next_random() % 4 == 0)
            hopper_late();
        else if (!cluster.ran && !hopper_late())
            double_die("deadlock: some threads wait for others that are gone or wait elsewhere");
    }
    return false;
}

/* The stack of the fiber that is likely to run after the next one: the frames of all are more than
 * the first cache holds. */
static void prefetch_next(void)
{
    if (cluster.at >= cluster.order.size())
        return;
    const char *top = (const char *)cluster.fibers[cluster.order[cluster.at]].sp;
    for (int line = 0; line < PREFETCH; line++)
        __builtin_prefetch(top + line * 64, 1);
}

/* Switches to the next fiber from the current one, without a scheduler between them; `save` is
 * where the stack pointer of the current one is kept. */
static void pass_on(void **save)
{
    void **to = choose() ? &cluster.fibers[cluster.current].sp : &cluster.scheduler;
    prefetch_next();
    if (to != save) /* else the only one that can run */
        double_switch(save, *to);
}

void double_yield_until(const uint64_t *gate)
{
    const uint32_t self = cluster.current;
    cluster.waits[self] = {gate, *gate};
    pass_on(&cluster.fibers[self].sp);
}

static void meet(barrier *b)
{
    if (++b->arrived == b->alive)
        b->arrived = 0, b->gate++;
    else
        double_yield_until(&b->gate);
}

static void leave_barrier(barrier *b)
{
    b->alive--;
    if (b->alive && b->arrived == b->alive) /* those who wait need not wait for it */
        b->arrived = 0, b->gate++;
}

static void leave(void)
{
    fiber *f = &cluster.fibers[cluster.current];
    cluster.waits[cluster.current] = {&never, never};
    leave_barrier(&cluster.block[f->block].sync);
    leave_barrier(&cluster.sync);
    pass_on(&f->sp);
}

static void enter(void)
{
    (*cluster.body)();
    leave();
    double_die("a finished thread ran again");
}

void __syncthreads(void) { meet(&cluster.block[own_block()].sync); }
void double_cluster_barrier(void) { meet(&cluster.sync); }

template <int N>
static void together(team<N> *teams, void (*fn)(void *const operands[N]), void *operand)
{
    uint32_t self = cluster.current, first = self % cluster.threads / N * N;
    team<N> *t = &teams[self / N];
    if (first + N > cluster.threads)
        double_die("fewer threads than a warp or a warpgroup do something together");
    t->operands[self % N] = operand;
    if (++t->arrived < N) {
        double_yield_until(&t->gate);
        return;
    }
    fn(t->operands);
    t->arrived = 0;
    t->gate++;
}

void double_warp(void (*fn)(void *const operands[32]), void *operand)
{
    together<32>(cluster.warps, fn, operand);
}

void double_warpgroup(void (*fn)(void *const operands[128]), void *operand)
{
    together<128>(cluster.warpgroups, fn, operand);
}

void *double_dynamic_shared(void) { return own_shared(); }

void *double_cluster_shared(void *p, uint32_t rank)
{
    ptrdiff_t at = (char *)p - own_shared();
    if (at < 0 || at >= (ptrdiff_t)cluster.smem || rank >= cluster.blocks)
        double_die("no address in the shared memory of a block of the cluster");
    return cluster.block[rank].shared + at;
}

uint32_t double_own_block(void) { return own_block(); }

char *double_shared_of(uint32_t block, uint32_t address, size_t n)
{
    bool inside = address >= SHARED_FROM && address + n <= SHARED_FROM + cluster.smem;
    return inside ? cluster.block[block].shared + (address - SHARED_FROM) : NULL;
}

char *double_shared_at(uint32_t address, size_t n)
{
    return double_shared_of(own_block(), address, n);
}

uint32_t double_shared_address(const void *p)
{
    ptrdiff_t at = (const char *)p - own_shared();
    if (at < 0 || at >= (ptrdiff_t)cluster.smem)
        double_die("an address that is not one of shared memory");
    return (uint32_t)at + SHARED_FROM;
}

/* ---------------------------------------------------------------- copies to shared memory */

void double_copy_async(void *dst, const void *src, size_t bytes, bool valid)
{
    fiber *f = &cluster.fibers[cluster.current];
    if ((uintptr_t)dst % bytes || (uintptr_t)src % bytes)
        double_die("a copy that is not aligned");
    memset(dst, 0xff, bytes); /* NaN until it has been waited for */
    const char *from = f->waited ? (const char *)src : double_earlier((const char *)src);
    f->copies.push_back({(char *)dst, from, bytes, valid, f->groups});
}

void double_depend_wait(void) { cluster.fibers[cluster.current].waited = true; }

void double_copy_commit(void) { cluster.fibers[cluster.current].groups++; }

void double_copy_wait(int left)
{
    fiber *f = &cluster.fibers[cluster.current];
    size_t kept = 0;
    for (pending &p : f->copies)
        if (p.group >= f->groups - left)
            f->copies[kept++] = p;
        else if (p.valid)
            memcpy(p.dst, p.src, p.bytes);
        else
            memset(p.dst, 0, p.bytes);
    f->copies.resize(kept);
}

/* ---------------------------------------------------------------- a grid */

static void prepare(uint32_t i)
{
    fiber *f = &cluster.fibers[i];
    uint32_t t = i % cluster.threads;
    void **top = (void **)(cluster.stacks + (size_t)(i + 1) * STACK - i % COLOURS * COLOUR);
    *--top = NULL; /* so that enter() finds the stack as after a call */
    *--top = (void *)enter;
    for (int r = 0; r < 6; r++)
        *--top = NULL;
    f->sp = top;
    f->groups = 0, f->waited = false;
    cluster.waits[i] = {&always, never};
    f->copies.clear();
    f->index = dim3(t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y);
    f->block = i / cluster.threads;
}

uint32_t double_random(void) { return machine.shuffle ? next_random() : 0; }

/* The order in which threads, or blocks, run: theirs, or, to find what relies on it, another each
 * time. */
static void order_of(std::vector<uint32_t> &order)
{
    uint32_t n = (uint32_t)order.size();
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    for (uint32_t i = n - 1; machine.shuffle && i > 0; i--)
        std::swap(order[i], order[next_random() % (i + 1)]);
}

/* Blocks (x .. x + cluster.blocks, y, z). */
static void run_cluster(dim3 first)
{
    const uint32_t n = cluster.threads * cluster.blocks;
    for (uint32_t i = 0; i < n; i += 32)
        cluster.warps[i / 32].arrived = 0, cluster.warpgroups[i / 128].arrived = 0;
    cluster.sync = barrier{n, 0, 0};
    for (uint32_t b = 0; b < cluster.blocks; b++) {
        memset(cluster.block[b].shared, 0xff, cluster.smem + CANARY);
        cluster.block[b].sync = barrier{cluster.threads, 0, 0};
        cluster.block[b].index = dim3(first.x + b, first.y, first.z);
    }
    hopper_begin();
    for (uint32_t i = 0; i < n; i++)
        prepare(i);
    cluster.order.resize(n);
    order_of(cluster.order);
    cluster.at = 0, cluster.ran = false;
    pass_on(&cluster.scheduler);
    hopper_end();
    for (uint32_t b = 0; b < cluster.blocks; b++)
        for (size_t i = 0; i < CANARY; i++)
            if ((unsigned char)cluster.block[b].shared[cluster.smem + i] != 0xff)
                double_die("written past the end of shared memory");
}

/* Of 9.0, or before it the least: that of 8.6 and 8.9. */
size_t double_most_shared(void) { return machine.major >= 9 ? MAX_SHARED : 99 << 10; }

bool double_grid_fits(dim3 grid, uint32_t blocks, dim3 threads, size_t smem)
{
    uint32_t n = threads.x * threads.y * threads.z;
    if (!grid.x || !grid.y || !grid.z || grid.y > 65535 || grid.z > 65535 || !n ||
        n > MAX_THREADS || smem > double_most_shared())
        return false;
    return blocks && blocks <= MAX_CLUSTER && grid.x % blocks == 0 && n * blocks <= MAX_FIBERS &&
           (blocks == 1 || (n % 128 == 0 && machine.major >= 9));
}

/* valgrind takes a change to a stack that it does not know for a stack that grows or shrinks: what
 * is between has no owner then, and it reports thousands of errors. It searches all that it knows
 * at each change, so only those of the `n` fibers that have run are named. */
static void name_stacks(uint32_t n)
{
#ifdef VALGRIND_STACK_REGISTER
    static uint32_t named;
    for (; RUNNING_ON_VALGRIND && named < n; named++)
        (void)VALGRIND_STACK_REGISTER(cluster.stacks + (size_t)named * STACK,
                                      cluster.stacks + (size_t)(named + 1) * STACK - 1);
#else
    (void)n;
#endif
}

void double_run_grid(dim3 grid, uint32_t blocks, dim3 threads, size_t smem,
                     std::function<void()> &body)
{
    if (!cluster.stacks) {
        void *p = mmap(NULL, (size_t)MAX_FIBERS * STACK, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert(p != MAP_FAILED);
        cluster.stacks = (char *)p;
        madvise(p, (size_t)MAX_FIBERS * STACK, MADV_HUGEPAGE); /* fewer pages to look up */
    }
    gridDim = grid, blockDim = threads;
    cluster.threads = threads.x * threads.y * threads.z;
    cluster.blocks = blocks;
    name_stacks(cluster.threads * blocks);
    cluster.smem = smem;
    cluster.body = &body;
    std::vector<uint32_t> order((size_t)grid.x / blocks * grid.y * grid.z);
    order_of(order);
    for (uint32_t i : order)
        run_cluster(dim3(i % (grid.x / blocks) * blocks, i / (grid.x / blocks) % grid.y,
                         i / (grid.x / blocks) / grid.y));
}
