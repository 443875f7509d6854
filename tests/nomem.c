/* Memory that runs out: preloaded into a server, it makes one allocation in N fail, of those that
 * the program itself makes (not its libraries, which end the process on purpose).
 *
 *     NOMEM=/tmp/n LD_PRELOAD=build/tests/nomem.so build/bin/launcher ...
 *
 * The file holds N as eight bytes and is mapped, so that a test turns failures on and off in every
 * process at once. 0, or no file: nothing fails. Eight more bytes: how many may fail, of all
 * processes together, counted down. With NOMEM_RANK only processes with that RANK, which
 * the launcher sets for each shard, have failures. The draws follow from NOMEM_SEED (1) and the
 * thread. integration/faults/test_no_memory.py uses it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);

static const volatile uint64_t *every; /* NULL: nothing fails */
static _Atomic uint64_t *left;         /* NULL: any number may fail */
static uintptr_t from, to;             /* the program's code */

/* The segment of the running program that its entry point is in. */
static void find_program(void)
{
    char text[1 << 16];
    const uintptr_t entry = getauxval(AT_ENTRY);
    ssize_t n = 0, got;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && n < (ssize_t)sizeof(text) - 1 &&
           (got = read(fd, text + n, sizeof(text) - 1 - (size_t)n)) > 0)
        n += got;
    close(fd);
    text[n] = 0;
    for (char *line = text; *line;) {
        char *end;
        const uintptr_t a = strtoull(line, &end, 16), b = strtoull(end + 1, NULL, 16);
        if (entry >= a && entry < b)
            from = a, to = b;
        line = strchr(line, '\n');
        line = line ? line + 1 : (char *)"";
    }
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("NOMEM"), *only = getenv("NOMEM_RANK"), *rank = getenv("RANK");
    if (only && (!rank || strcmp(only, rank)))
        return;
    const int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    struct stat st;
    if (fd < 0 || fstat(fd, &st))
        return;
    find_program();
    void *p = mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p == MAP_FAILED)
        return;
    every = p;
    left = st.st_size < 16 ? NULL : (_Atomic uint64_t *)p + 1;
}

static int fails(const void *caller)
{
    static _Thread_local uint64_t x;
    static _Atomic uint64_t threads;
    const uint64_t n = every ? *every : 0;
    if (!n || (uintptr_t)caller < from || (uintptr_t)caller >= to)
        return 0;
    if (!x) {
        const char *seed = getenv("NOMEM_SEED");
        x = ((seed ? strtoull(seed, NULL, 0) : 1) * 0x9e3779b97f4a7c15U ^ ++threads << 32) | 1;
    }
    x ^= x << 13; /* xorshift64: Marsaglia, 2003 */
    x ^= x >> 7;
    x ^= x << 17;
    if ((x >> 11) % n)
        return 0;
    uint64_t may = left ? *left : 1;
    while (left && may && !atomic_compare_exchange_weak(left, &may, may - 1))
        ;
    if (!may)
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t n) { return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(n, size);
}
void *realloc(void *p, size_t n)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(p, n);
}
