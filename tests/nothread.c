/* Threads that cannot be started: preloaded into a server, it makes the k-th pthread_create() of a
 * library fail in each process of one program.
 *
 *     NOTHREAD=router:libgpr:3 LD_PRELOAD=build/tests/nothread.so build/bin/launcher ...
 *
 * Without a library ("router::3") all calls of the process count. A negative k: that call and all
 * later ones fail. integration/faults/test_no_threads.py uses it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef int create_fn(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *arg);

static atomic_int n_calls;

/* Copies the part of `s` before the next colon; what is behind it. */
static const char *part(const char *s, char *out, size_t size)
{
    const size_t n = strcspn(s, ":");
    memcpy(out, s, n < size ? n : size - 1);
    out[n < size ? n : size - 1] = '\0';
    return s[n] ? s + n + 1 : s + n;
}

static bool fails(const void *caller)
{
    char program[64], library[64];
    const char *s = getenv("NOTHREAD");
    Dl_info from;
    if (!s)
        return false;
    s = part(part(s, program, sizeof(program)), library, sizeof(library));
    if (strcmp(program, program_invocation_short_name) != 0 ||
        (*library && (!dladdr(caller, &from) || !strstr(from.dli_fname, library))))
        return false;
    const int k = atoi(s), now = ++n_calls;
    return k < 0 ? now >= -k : now == k;
}

int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *arg)
{
    static create_fn *next;
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
    return fails(__builtin_return_address(0)) ? EAGAIN : next(t, a, run, arg);
}
