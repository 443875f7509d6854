/* populate.c - memory that was promised, taken while we already serve.
 *
 * Touching the KV cache costs a page fault per page and, under a hypervisor, another one there: a
 * second for one or two GB, which nobody should wait for. A thread of the lowest priority takes the
 * pages in order, one huge page at a time; whoever needs one earlier faults it in as usual. */
#include "common/log.h"
#include "model-server/backend/cpu/cpu.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { STEP = 2 << 20, PAGE = 4096, LOWEST = 19 };

struct populate {
    pthread_t thread;
    char *at;
    size_t bytes;
    atomic_bool stop;
};

/* Adding nothing is a write that loses nobody's: others may be at work in the same page. */
static void touch(char *p, size_t n)
{
    for (size_t i = 0; i < n; i += PAGE)
        __atomic_fetch_or(p + i, 0, __ATOMIC_RELAXED);
}

static void *run(void *arg)
{
    struct populate *f = arg;
    bool known = true;                    /* MADV_POPULATE_WRITE is: Linux 5.14 */
    setpriority(PRIO_PROCESS, 0, LOWEST); /* on Linux of this thread alone */
    for (size_t i = 0; i < f->bytes && !atomic_load_explicit(&f->stop, memory_order_relaxed);
         i += STEP) {
        size_t n = f->bytes - i < STEP ? f->bytes - i : STEP;
        int rc = -1;
#ifdef MADV_POPULATE_WRITE
        rc = known ? madvise(f->at + i, n, MADV_POPULATE_WRITE) : -1;
#endif
        if (rc == 0)
            continue;
        if (known && errno != EINVAL && errno != ENOSYS && errno != EINTR && errno != EAGAIN) {
            int why = errno;
            LOG(LOG_WARN, "the KV cache does not fit into memory", LOGI("bytes", f->bytes),
                LOGI("taken", i), LOGI("errno", why));
            break;
        }
        known = known && (errno == EINTR || errno == EAGAIN);
        touch(f->at + i, n);
    }
    return NULL;
}

struct populate *cpu_populate(void *p, size_t bytes)
{
    struct populate *f = calloc(1, sizeof(*f));
    if (!f)
        return NULL;
    f->at = p;
    f->bytes = bytes;
    if (pthread_create(&f->thread, NULL, run, f) == 0)
        return f;
    free(f);
    return NULL;
}

void cpu_populate_end(struct populate *f)
{
    if (!f)
        return;
    atomic_store_explicit(&f->stop, true, memory_order_relaxed);
    pthread_join(f->thread, NULL);
    free(f);
}
