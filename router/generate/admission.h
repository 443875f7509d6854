/* admission.h - permits for generations, shared among API keys.
 *
 * `capacity` generations may wait or run (--max-concurrent-requests). A key that is alone may hold
 * all of them. A key's share is the capacity divided by the number of keys that hold permits,
 * itself included, and at least 1. A request gets permits
 *   - while those held by all stay within the capacity, or
 *   - while those of its key stay within its share.
 * So a key is never refused within its share, whatever the others hold: then more than the capacity
 * is held until they end, at most capacity * (1 + 1/2 + 1/3 + ...) over the keys. A key above its
 * share gets no permit before that excess has gone. Where there are no keys, all requests have key
 * 0: the permits are one counter.
 *
 * Thread-safe; nothing blocks but for the few instructions under the lock. Memory: one small record
 * for each key that holds permits. */
#ifndef ROUTER_GENERATE_ADMISSION_H
#define ROUTER_GENERATE_ADMISSION_H
#include <pthread.h>
#include <stdint.h>

enum { ADMISSION_BUCKETS = 64 };

struct admission {
    pthread_mutex_t lock;
    uint32_t capacity, n_held;
    uint32_t n_keys; /* that hold permits */
    struct admission_key *bucket[ADMISSION_BUCKETS];
};

void admission_init(struct admission *a, uint32_t capacity);
void admission_free(struct admission *a); /* no call is alive */

/* Up to `most` permits for a request of `key`, as many as it may have now. 0: refused, or no
 * memory. */
uint32_t admission_take(struct admission *a, uint64_t key, uint32_t most);
/* Back `n` permits that `key` was given. */
void admission_give(struct admission *a, uint64_t key, uint32_t n);
/* How many are held. */
uint32_t admission_held(struct admission *a);
#endif
