/* memory.cc - memory of the device, closed to the host but while a stream runs; page-locked memory;
 * allocations that other processes map. */
#include "tests/cuda_double/inside.h"
#include <assert.h>
#include <fcntl.h>
#include <map>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

enum { GAP = 512, PAGE = 4096, HUGE_PAGE = 2 << 20, POISON = 1 << 20 };
static struct {
    char *base;
    std::map<char *, size_t> taken;
} device;
static std::map<char *, size_t> pinned; /* by address: bytes */
static std::map<char *, size_t> mapped; /* allocations of other processes */
static std::map<char *, int> exported;  /* allocations that others may map: their files */

/* A protection key closes all of it with one instruction; where the CPU has none, mprotect() does,
 * at a cost that grows with the pages in use: they are large ones. */
static int protection_key(void)
{
    static const int key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    return key;
}

static void protect(char *p, size_t n, bool open)
{
    const int key = protection_key(), all = PROT_READ | PROT_WRITE;
    if (key >= 0 ? pkey_mprotect(p, n, all, key) : mprotect(p, n, open ? all : PROT_NONE))
        double_die("mprotect");
}

void double_open_memory(bool open)
{
    if (protection_key() >= 0) {
        pkey_set(protection_key(), open ? 0 : PKEY_DISABLE_ACCESS);
        return;
    }
    if (device.base)
        protect(device.base, machine.total, open);
    for (auto &m : mapped)
        protect(m.first, m.second, open);
}

/* ---------------------------------------------------------------- kernels that start early */

static std::map<char *, std::vector<char>>
    earlier; /* allocations as a chain of kernels found them */
static bool chain_begins = true;

void double_chain_begins(void) { chain_begins = true; }

void double_chain_goes_on(void)
{
    if (!machine.early || !chain_begins)
        return;
    earlier.clear();
    for (auto &t : device.taken)
        earlier[t.first] = std::vector<char>(t.first, t.first + t.second);
    chain_begins = false;
}

const char *double_earlier(const char *p)
{
    auto t = earlier.upper_bound((char *)(uintptr_t)p);
    if (!machine.early || t == earlier.begin())
        return p;
    --t;
    size_t at = (size_t)(p - t->first);
    return at < t->second.size() ? t->second.data() + at : p;
}

bool double_on_device(const void *p)
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
        void *all = mmap(NULL, machine.total + HUGE_PAGE, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert(all != MAP_FAILED);
        device.base = (char *)all + -(uintptr_t)all % HUGE_PAGE;
        madvise(device.base, machine.total, MADV_HUGEPAGE);
        protect(device.base, machine.total, false);
    }
    const size_t align = n % PAGE ? GAP : PAGE; /* whole pages may be exported */
    for (auto &t : device.taken) {              /* first fit */
        if (device.base + at + need <= t.first)
            break;
        at = (size_t)(t.first - device.base) + (t.second + GAP - 1) / GAP * GAP + GAP;
        at = (at + align - 1) / align * align;
    }
    if (at + need > machine.total)
        return cudaErrorMemoryAllocation;
    device.taken[device.base + at] = n;
    machine.used += need, machine.allocations++;
    double_open_memory(true);
    memset(device.base + at, 0xff, need);
    double_open_memory(false);
    *p = device.base + at;
    return cudaSuccess;
}

/* ---------------------------------------------------------------- memory for other processes */

/* An allocation of whole pages moves to a file without a name, which others open by way of /proc.
 */
struct ipc_handle {
    int pid, fd;
    size_t bytes;
};

static void replace_pages(char *p, size_t n, int fd)
{
    double_open_memory(true);
    std::vector<char> was(p, p + n);
    int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
    if (mmap(p, n, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) == MAP_FAILED)
        double_die("mmap");
    protect(p, n, true);
    memcpy(p, was.data(), n);
    double_open_memory(false);
}

static void unexport(char *p, size_t n)
{
    auto x = exported.find(p);
    if (x == exported.end())
        return;
    replace_pages(p, n, -1);
    close(x->second);
    exported.erase(x);
}

extern "C" cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *h, void *p)
{
    auto t = device.taken.find((char *)p);
    if (t == device.taken.end() || (uintptr_t)p % PAGE || t->second % PAGE ||
        exported.count((char *)p))
        return cudaErrorInvalidValue; /* more than the double can do */
    int fd = memfd_create("cuda-double", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)t->second))
        return cudaErrorMemoryAllocation;
    double_run_all_streams();
    replace_pages(t->first, t->second, fd);
    exported[t->first] = fd;
    ipc_handle out = {(int)getpid(), fd, t->second};
    memset(h, 0, sizeof(*h));
    memcpy(h, &out, sizeof(out));
    return cudaSuccess;
}

extern "C" cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t h, unsigned flags)
{
    ipc_handle in;
    char path[64];
    memcpy(&in, &h, sizeof(in));
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", in.pid, in.fd);
    int fd =
        in.pid == getpid() || flags != cudaIpcMemLazyEnablePeerAccess ? -1 : open(path, O_RDWR);
    if (fd < 0)
        return cudaErrorInvalidValue;
    *p = mmap(NULL, in.bytes, PROT_NONE, MAP_SHARED, fd, 0);
    close(fd);
    if (*p == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    protect((char *)*p, in.bytes, false);
    mapped[(char *)*p] = in.bytes;
    return cudaSuccess;
}

extern "C" cudaError_t cudaIpcCloseMemHandle(void *p)
{
    auto m = mapped.find((char *)p);
    if (m == mapped.end())
        return cudaErrorInvalidValue;
    double_run_all_streams();
    munmap(p, m->second);
    mapped.erase(m);
    return cudaSuccess;
}

/* ---------------------------------------------------------------- given back; page-locked */

extern "C" cudaError_t cudaFree(void *p)
{
    if (!p)
        return cudaSuccess;
    double_run_all_streams();
    auto t = device.taken.find((char *)p);
    if (t == device.taken.end())
        return cudaErrorInvalidValue;
    size_t n = t->second, need = (n + GAP - 1) / GAP * GAP + GAP;
    unexport((char *)p, n);
    double_open_memory(true);
    for (size_t i = n; i < need; i++)
        if (((unsigned char *)p)[i] != 0xff)
            double_die("written past the end of an allocation");
    memset(p, 0xff, need);
    double_open_memory(false);
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
    memset(*p, 0xff, n < POISON ? n : (size_t)POISON); /* touching all of it takes long */
    return cudaSuccess;
}

extern "C" cudaError_t cudaFreeHost(void *p)
{
    if (!p)
        return cudaSuccess;
    double_run_all_streams();
    if (!pinned.erase((char *)p))
        return cudaErrorInvalidValue;
    free(p);
    return cudaSuccess;
}

bool double_is_pinned(char *begin, char *end)
{
    auto area = pinned.upper_bound(begin);
    return area != pinned.begin() && end <= (--area)->first + area->second;
}

extern "C" cudaError_t cudaMemGetInfo(size_t *left, size_t *total)
{
    *left = machine.total - machine.used, *total = machine.total;
    return cudaSuccess;
}
