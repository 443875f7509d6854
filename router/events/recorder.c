#include "router/events/recorder.h"
#include <string.h>

/* ------------------------------------------------------------------ msgpack */

static void put_be(struct buf *b, uint8_t tag, uint64_t v, int bytes)
{
    char out[9] = {(char)tag};
    for (int i = 0; i < bytes; i++)
        out[1 + i] = (char)(v >> 8 * (bytes - 1 - i));
    buf_add(b, out, 1 + (size_t)bytes);
}

static void put_uint(struct buf *b, uint64_t v)
{
    if (v < 128)
        buf_ch(b, (char)v);
    else if (v <= UINT8_MAX)
        put_be(b, 0xcc, v, 1);
    else if (v <= UINT16_MAX)
        put_be(b, 0xcd, v, 2);
    else if (v <= UINT32_MAX)
        put_be(b, 0xce, v, 4);
    else
        put_be(b, 0xcf, v, 8);
}

static void put_nil(struct buf *b) { buf_ch(b, (char)0xc0); }
static void put_array(struct buf *b, uint32_t n) { put_be(b, 0xdd, n, 4); }
static void put_map(struct buf *b, uint8_t n) { buf_ch(b, (char)(0x80 | n)); } /* n < 16 */

static void put_str(struct buf *b, const char *s) /* shorter than 256 bytes */
{
    put_be(b, 0xd9, strlen(s), 1);
    buf_str(b, s);
}

static void put_double(struct buf *b, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof(bits));
    put_be(b, 0xcb, bits, 8);
}

static void put_type(struct buf *b, uint8_t n_fields, const char *type)
{
    put_map(b, n_fields);
    put_str(b, "type");
    put_str(b, type);
}

/* ------------------------------------------------------------------ events */

static const char medium[] = "GPU"; /* the tier that prompts are computed from, on any device */

static void end_run(struct kv_recorder *r)
{
    struct buf *b = &r->events;
    if (r->n_run == 0)
        return;
    put_type(b, 8, "BlockStored");
    put_str(b, "block_hashes");
    put_array(b, r->n_run);
    buf_add(b, r->hashes.p, r->hashes.len);
    put_str(b, "parent_block_hash");
    if (r->has_parent)
        put_uint(b, r->parent);
    else
        put_nil(b);
    put_str(b, "token_ids");
    put_array(b, r->n_run * r->block_tokens);
    buf_add(b, r->tokens.p, r->tokens.len);
    put_str(b, "block_size");
    put_uint(b, r->block_tokens);
    put_str(b, "lora_id");
    put_nil(b);
    put_str(b, "medium");
    put_str(b, medium);
    put_str(b, "lora_name");
    put_nil(b);
    r->n++;
    r->n_run = 0;
    buf_reset(&r->hashes);
    buf_reset(&r->tokens);
}

void kv_recorder_stored(struct kv_recorder *r, uint64_t hash, const uint64_t *parent,
                        const uint64_t *tokens)
{
    if (r->n_run > 0 && !(parent && *parent == r->last))
        end_run(r);
    if (r->n_run == 0) {
        r->has_parent = parent != NULL;
        r->parent = parent ? *parent : 0;
    }
    put_uint(&r->hashes, hash);
    for (uint32_t i = 0; i < r->block_tokens; i++)
        put_uint(&r->tokens, (uint32_t)tokens[i]);
    r->last = hash;
    r->n_run++;
}

void kv_recorder_removed(struct kv_recorder *r, uint64_t hash)
{
    struct buf *b = &r->events;
    end_run(r);
    put_type(b, 3, "BlockRemoved");
    put_str(b, "block_hashes");
    put_array(b, 1);
    put_uint(b, hash);
    put_str(b, "medium");
    put_str(b, medium);
    r->n++;
}

void kv_recorder_cleared(struct kv_recorder *r)
{
    end_run(r);
    put_type(&r->events, 1, "AllBlocksCleared");
    r->n++;
}

bool kv_recorder_take(struct kv_recorder *r, double unix_time, uint32_t rank, struct buf *out)
{
    end_run(r);
    if (r->n == 0)
        return false;
    put_array(out, 3);
    put_double(out, unix_time);
    put_array(out, r->n);
    buf_add(out, r->events.p, r->events.len);
    put_uint(out, rank);
    const bool whole = !r->events.oom && !out->oom;
    r->n = 0;
    r->events.oom = r->hashes.oom = r->tokens.oom = false;
    buf_reset(&r->events);
    return whole;
}

void kv_recorder_free(struct kv_recorder *r)
{
    buf_free(&r->events);
    buf_free(&r->hashes);
    buf_free(&r->tokens);
}
