#include "router/scheduler/kv/order.h"
#include "common/hash.h"
#include <assert.h>
#include <stdlib.h>

bool kv_order_init(struct kv_order *o, uint32_t n_blocks, uint64_t seed)
{
    o->root = KV_NO_BLOCK;
    o->v = calloc((size_t)n_blocks + 1, sizeof(*o->v));
    for (uint32_t i = 0; o->v && i < n_blocks; i++)
        o->v[i].height = hash_mix(seed ^ ((uint64_t)i + 1) * 0x9e3779b97f4a7c15u);
    return o->v != NULL;
}

void kv_order_free(struct kv_order *o)
{
    free(o->v);
    o->v = NULL;
}

static uint32_t common(const struct kv_content *a, const struct kv_content *b)
{
    uint32_t n = a->n < b->n ? a->n : b->n, i = 0;
    while (i < n && a->keys[i] == b->keys[i])
        i++;
    return i;
}

static bool siblings(const struct kv_content *a, const struct kv_content *b)
{
    return a->parent == b->parent && a->space == b->space;
}

static bool less(const struct kv_content *a, const struct kv_content *b)
{
    if (a->parent != b->parent)
        return a->parent < b->parent;
    if (a->space != b->space)
        return a->space < b->space;
    uint32_t i = common(a, b);
    if (i < a->n && i < b->n)
        return a->keys[i] < b->keys[i];
    return a->n < b->n;
}

/* Splits the subtree `t` under `id`, which takes its place: smaller ones to the left, the rest to
 * the right. */
static void split(struct kv_order *o, uint32_t t, uint32_t id)
{
    uint32_t *left = &o->v[id].left, *right = &o->v[id].right;
    while (t != KV_NO_BLOCK) {
        struct kv_node *n = &o->v[t];
        bool goes_left = less(&n->is, &o->v[id].is);
        uint32_t **to = goes_left ? &left : &right;
        **to = t;
        *to = goes_left ? &n->right : &n->left;
        t = **to;
    }
    *left = *right = KV_NO_BLOCK;
}

void kv_order_put(struct kv_order *o, uint32_t id, const struct kv_content *is)
{
    struct kv_node *n = &o->v[id];
    uint32_t *at = &o->root;
    assert(id != KV_NO_BLOCK && is->n > 0);
    n->is = *is;
    while (*at != KV_NO_BLOCK && o->v[*at].height >= n->height)
        at = less(is, &o->v[*at].is) ? &o->v[*at].left : &o->v[*at].right;
    split(o, *at, id);
    *at = id;
}

void kv_order_drop(struct kv_order *o, uint32_t id)
{
    struct kv_node *n = &o->v[id];
    uint32_t *at = &o->root, a = n->left, b = n->right;
    while (*at != id) {
        assert(*at != KV_NO_BLOCK);
        at = less(&n->is, &o->v[*at].is) ? &o->v[*at].left : &o->v[*at].right;
    }
    while (a != KV_NO_BLOCK && b != KV_NO_BLOCK) { /* merges its two subtrees */
        bool take_a = o->v[a].height > o->v[b].height;
        uint32_t *top = take_a ? &a : &b;
        *at = *top;
        at = take_a ? &o->v[*top].right : &o->v[*top].left;
        *top = *at;
    }
    *at = a != KV_NO_BLOCK ? a : b;
}

struct kv_near kv_order_near(const struct kv_order *o, const struct kv_content *is)
{
    struct kv_near r = {KV_NO_BLOCK, KV_NO_BLOCK};
    for (uint32_t t = o->root; t != KV_NO_BLOCK;) {
        bool before = less(&o->v[t].is, is);
        *(before ? &r.before : &r.after) = t;
        t = before ? o->v[t].right : o->v[t].left;
    }
    if (r.before != KV_NO_BLOCK && !siblings(&o->v[r.before].is, is))
        r.before = KV_NO_BLOCK;
    if (r.after != KV_NO_BLOCK && !siblings(&o->v[r.after].is, is))
        r.after = KV_NO_BLOCK;
    return r;
}

uint32_t kv_order_common(const struct kv_order *o, uint32_t id, const struct kv_content *is)
{
    return id == KV_NO_BLOCK ? 0 : common(&o->v[id].is, is);
}

uint32_t kv_order_next(const struct kv_order *o, const struct kv_content *is)
{
    uint32_t next = KV_NO_BLOCK;
    for (uint32_t t = o->root; t != KV_NO_BLOCK;) {
        bool after = !is || less(is, &o->v[t].is);
        if (after)
            next = t;
        t = after ? o->v[t].left : o->v[t].right;
    }
    return next;
}
