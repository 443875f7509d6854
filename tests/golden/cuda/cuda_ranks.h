/* cuda_ranks.h - ranks of the CUDA plugin, each a process with a device of its own, and the ways
 * that their sums may take.
 *
 * The process that starts them never touches a device, so that all of it also runs on a GPU: two
 * ranks, on one GPU with CUDA_SHARE_GPU=1 (see tests/gpu_check). One program includes this, once.
 */
#ifndef TESTS_GOLDEN_CUDA_RANKS_H
#define TESTS_GOLDEN_CUDA_RANKS_H
#include "model-server/comm/comm.h"
#include "tests/cuda_double/cuda_runtime_api.h"
#include "tests/golden/cuda/cuda_plugin.h"
#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_RANKS = 4 };

static const struct backend_ops *gpu;
static const char *plugin_path;
static struct cuda_double *machine; /* NULL: a real GPU */
static char group[64];

/* A way that sums may take. */
static const struct way {
    const char *name, *features;
    bool nccl;
} ways[] = {
    {"NCCL and peers' memory", "0x4f", true},
    {"NCCL", "0x7", true},
    {"peers' memory and the hosts", "0x4f", false},
    {"the hosts", "0x7", false},
};
enum { N_WAYS = sizeof(ways) / sizeof(ways[0]) };

static bool wants_peers, wants_nccl;

/* TEST_WAY: only the way of this number. */
static bool skips(int way)
{
    const char *only = getenv("TEST_WAY");
    return only && atoi(only) != way;
}

/* TEST_FEATURES: instead of the way's own CUDA_FEATURES, to find what one does not get along with.
 */
static void take_way(const struct way *w)
{
    enum { PEERS = 8 };
    const char *own = getenv("TEST_FEATURES"), *features = own ? own : w->features;
    wants_peers = strtoul(features, NULL, 0) & PEERS, wants_nccl = w->nccl;
    setenv("CUDA_FEATURES", features, 1);
    if (!w->nccl)
        setenv("NCCL_LIBRARY", "/no/such/libnccl.so", 1);
    else if (machine)
        setenv("NCCL_LIBRARY", plugin_path, 1);
    else if (getenv("TEST_NCCL_LIBRARY"))
        setenv("NCCL_LIBRARY", getenv("TEST_NCCL_LIBRARY"), 1);
    else
        unsetenv("NCCL_LIBRARY");
}

struct rank {
    int rank, world;
    struct comm *host, *comm;
    struct device *dev;
    void *arg;
};

/* In a rank's process: ends it, with words for the log. */
#define NEED(what)                                                                                 \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "rank %d of %d, line %d: %s: %s\n", r->rank, r->world, __LINE__,       \
                    #what, e.msg);                                                                 \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static void open_rank(struct rank *r)
{
    struct err e = ERR_INIT;
    struct device_options o = {.index = r->rank, .threads = 1, .features = ~0ull};
    NEED(r->host = comm_shm_open(group, r->rank, r->world, 20000, &e));
    NEED(r->dev = gpu->open(&o, &e));
}

static void join_rank(struct rank *r)
{
    struct err e = ERR_INIT;
    open_rank(r);
    NEED(r->comm = gpu->comm_open(r->dev, r->host, &e));
    const char *how = gpu->describe(r->dev);
    NEED(!strstr(how, "peers' memory") != wants_peers);
    NEED((!machine && !getenv("TEST_NCCL_LIBRARY")) || !strstr(how, "NCCL") != wants_nccl);
}

static void close_rank(struct rank *r)
{
    struct err e = ERR_INIT;
    comm_close(r->comm);
    gpu->close(r->dev);
    NEED(!machine || machine->allocations == 0);
    comm_close(r->host);
}

static pid_t start(void (*fn)(struct rank *r), int rank, int world, void *arg)
{
    pid_t child = fork();
    if (child)
        return child;
    struct rank r = {.rank = rank, .world = world, .arg = arg};
    alarm(100);
    fn(&r);
    _exit(0);
}

/* fn by `world` processes; every one must end well. */
static void run_ranks(void (*fn)(struct rank *r), int world, void *arg)
{
    static int n;
    pid_t pids[MAX_RANKS];
    int bad = 0;
    snprintf(group, sizeof(group), "test-cuda-%d-%d", (int)getpid(), n++);
    setenv("CUDA_DOUBLE_DEVICES", "4", 1);
    for (int i = 0; i < world; i++)
        pids[i] = start(fn, i, world, arg);
    for (int i = 0; i < world; i++) {
        int status = -1;
        waitpid(pids[i], &status, 0);
        if (status)
            bad = printf("rank %d of %d: status %#x\n", i, world, (unsigned)status);
    }
    assert_int_equal(bad, 0);
}

/* Loads the plugin. false: the program ends with *rc, and its cases are skipped if that is 0. */
static bool find_machine(int cases, int *rc)
{
    struct err e = ERR_INIT;
    *rc = 0;
    if (!(plugin_path = cuda_plugin_path())) {
        printf("skipped: %d cases (no GPU plugin is given, and the double runs on x86-64 only)\n",
               cases);
        return false;
    }
    const struct backend_plugin *p = backend_plugin_load(plugin_path, &e);
    if (!p) {
        fprintf(stderr, "%s\n", e.msg);
        *rc = 1;
        return false;
    }
    gpu = p->ops;
    struct cuda_double *(*stand)(void) = NULL;
    *(void **)&stand = dlsym(dlopen(plugin_path, RTLD_NOW), "cuda_double");
    machine = stand ? stand() : NULL;
    return true;
}
#endif
