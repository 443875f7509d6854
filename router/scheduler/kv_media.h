/* kv_media.h - pictures in a prompt, as the prefix cache and the plan of steps see them.
 *
 * A position has a 64-bit key. It is the token's id, or, inside a picture, a hash of the picture's
 * digest and of the index within it. So two pictures behind equal placeholders have different keys,
 * and the same picture has the same. Where all tokens of a prompt see each other, a key is of the
 * whole prompt and of the index, so that only an equal prompt shares its KV. Pure. */
#ifndef ROUTER_SCHEDULER_KV_MEDIA_H
#define ROUTER_SCHEDULER_KV_MEDIA_H
#include <stdbool.h>
#include <stdint.h>

struct kv_medium {
    uint32_t first, n; /* tokens [first, first + n) of the prompt */
    uint64_t digest;   /* of its pixels */
};
struct kv_media {
    const struct kv_medium *v; /* [n] ascending, none within another; their owner's */
    uint32_t n;
    bool whole; /* its tokens see each other both ways: a step must not end inside one */
    /* So many tokens, a whole prompt, all see each other; 0: pictures' tokens at most. Their KV
     * depends on all of them, so the key of each is a hash of `prompt` and its index. */
    uint32_t prefix;
    uint64_t prompt; /* kv_media_prompt() */
};

/* A digest of tokens[0 .. n) and of the pictures among them. */
uint64_t kv_media_prompt(const struct kv_medium *v, uint32_t n_media, const uint32_t *tokens,
                         uint32_t n);

/* Keys of tokens[at .. at + n) into out[n]. */
void kv_media_keys(const struct kv_media *m, const uint32_t *tokens, uint32_t at, uint32_t n,
                   uint64_t *out);

/* Where a step ends that computes tokens from `from` on and would stop in front of `to`: there, or,
 * inside a picture that stays whole, in front of that; `from` if nothing is left then. */
uint32_t kv_media_stop(const struct kv_media *m, uint32_t from, uint32_t to);
/* The least position behind `at` where a step may end: that of a picture which `at` stands in, or
 * in front of, is its end. */
uint32_t kv_media_next(const struct kv_media *m, uint32_t at);
#endif
