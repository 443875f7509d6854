/* admission.h - permits for generations, shared fairly among API keys.
 *
 * `capacity` generations may wait or run (--max-concurrent-requests). A single active key may hold
 * all of them. A key's share is the capacity divided by the number of keys that hold permits,
 * itself included, and at least 1. A request gets permits
 *   - while all held permits stay within the capacity, or
 *   - while the permits of its key stay within its share.
 * So a key is never refused within its share, whatever others hold. The total may then exceed the
 * capacity until other requests end: at most capacity * (1 + 1/2 + 1/3 + ...) over the keys. A key
 * above its share gets no permit before that excess is gone. Without API keys all requests have key
 * 0 and the permits are one counter.
 *
 * Thread-safe; calls only wait for a short lock. Memory: one small record per key that holds
 * permits. */
#ifndef ROUTER_GENERATE_ADMISSION_H
#define ROUTER_GENERATE_ADMISSION_H
#include "common/err.h"
#include <pthread.h>
#include <stdint.h>

enum { ADMISSION_BUCKETS = 64 };

struct admission {
    pthread_mutex_t lock;
    uint32_t capacity, n_held;
    uint32_t n_keys; /* keys that hold permits */
    struct admission_key *bucket[ADMISSION_BUCKETS];
};

void admission_init(struct admission *a, uint32_t capacity);
void admission_free(struct admission *a); /* no call may be in progress */

/* Takes up to `most` permits for a request of `key`, as many as are available to it. 0: refused, or
 * out of memory. */
uint32_t admission_take(struct admission *a, uint64_t key, uint32_t most);
/* Sets the reason of a refusal: a named key holds its share (ERR_KEY_LIMIT); without keys the
 * server is full (ERR_OVERLOADED). Returns -1. */
int admission_refuse(uint64_t key, struct err *e);
/* Returns `n` permits of `key`. */
void admission_give(struct admission *a, uint64_t key, uint32_t n);
/* Permits held by all keys. */
uint32_t admission_held(struct admission *a);
#endif
