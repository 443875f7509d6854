/* media.h - images in a prompt, as the prefix cache and the step planner see them. Pure.
 *
 * Each position has a 64-bit key. It is the token id, or, inside an image, a hash of the image's
 * digest and the index within it. So equal placeholders of different images have different keys,
 * and equal images have equal keys. If all tokens of a prompt attend to each other, each key hashes
 * the whole prompt and the index. So only an equal prompt shares its KV. */
#ifndef ROUTER_SCHEDULER_KV_MEDIA_H
#define ROUTER_SCHEDULER_KV_MEDIA_H
#include <stdbool.h>
#include <stdint.h>

struct kv_medium {
    uint32_t first, n; /* tokens [first, first + n) of the prompt */
    uint64_t digest;   /* digest of its pixels */
};
struct kv_media {
    const struct kv_medium *v; /* [n] ascending, disjoint; not owned */
    uint32_t n;
    /* image tokens attend to each other in both directions: no step may end inside an image */
    bool whole;
    /* Number of tokens, a whole prompt, that all attend to each other; 0: at most those of an
     * image. Their KV depends on all of them, so each key is a hash of `prompt` and the index. */
    uint32_t prefix;
    uint64_t prompt; /* kv_media_prompt() */
};

/* Digest of tokens[0 .. n) and of the images among them. */
uint64_t kv_media_prompt(const struct kv_medium *v, uint32_t n_media, const uint32_t *tokens,
                         uint32_t n);

/* Writes the keys of tokens[at .. at + n) to out[n]. */
void kv_media_keys(const struct kv_media *m, const uint32_t *tokens, uint32_t at, uint32_t n,
                   uint64_t *out);

/* Where a step from `from` that would end at `to` must end: `to`, or the start of an image that
 * stays whole and contains `to`. Returns `from` if nothing is left then. */
uint32_t kv_media_stop(const struct kv_media *m, uint32_t from, uint32_t to);
/* The smallest position after `at` where a step may end. If `at` is at the start of or inside an
 * image, that is its end. */
uint32_t kv_media_next(const struct kv_media *m, uint32_t at);
#endif
