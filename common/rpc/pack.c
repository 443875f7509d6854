#include "common/rpc/pack.h"
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>
#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct rpc_chunk {
    struct rpc_chunk *next;
    size_t len, cap;
    alignas(16) char mem[];
};

static void *pb_alloc(void *ctx, size_t n) { return rpc_mem_alloc(ctx, n); }
static void pb_free(void *ctx, void *p) { (void)ctx, (void)p; }

void rpc_mem_init(struct rpc_mem *m, size_t limit)
{
    *m = (struct rpc_mem){.pb = {pb_alloc, pb_free, m}, .limit = limit};
}

static struct rpc_chunk *grow(struct rpc_mem *m, size_t n)
{
    size_t cap = m->top ? m->top->cap * 2 : 4096 - sizeof(struct rpc_chunk);
    if (cap < n)
        cap = n;
    if (cap > m->limit - m->used)
        cap = m->limit - m->used;
    if (cap < n)
        return NULL;
    struct rpc_chunk *c = malloc(sizeof(*c) + cap);
    if (!c) {
        m->no_memory = true;
        return NULL;
    }
    *c = (struct rpc_chunk){m->top, 0, cap};
    m->used += cap;
    return m->top = c;
}

void *rpc_mem_alloc(struct rpc_mem *m, size_t n)
{
    if (n > SIZE_MAX - 16)
        return NULL;
    n = (n + 15) & ~(size_t)15;
    struct rpc_chunk *c = m->top;
    if ((!c || n > c->cap - c->len) && !(c = grow(m, n)))
        return NULL;
    void *p = c->mem + c->len;
    c->len += n;
    return memset(p, 0, n);
}

char *rpc_mem_strdup(struct rpc_mem *m, const char *s, size_t n)
{
    char *p = rpc_mem_alloc(m, n + 1);
    if (p && n)
        memcpy(p, s, n);
    return p;
}

static void free_chunks(struct rpc_chunk *c)
{
    while (c) {
        struct rpc_chunk *next = c->next;
        free(c);
        c = next;
    }
}

/* The newest chunk is as large as all others together. Keeping only it means that the next call of
 * the same size fits, after at most one more growth. */
void rpc_mem_reset(struct rpc_mem *m)
{
    if (!m->top)
        return;
    free_chunks(m->top->next);
    m->top->next = NULL;
    m->top->len = 0;
    m->used = m->top->cap;
}

void rpc_mem_free(struct rpc_mem *m)
{
    free_chunks(m->top);
    m->top = NULL;
    m->used = 0;
}

/* An uncompressed message in one slice needs no copy. */
static grpc_slice flatten(grpc_byte_buffer *b)
{
    if (b->type == GRPC_BB_RAW && b->data.raw.compression == GRPC_COMPRESS_NONE &&
        b->data.raw.slice_buffer.count == 1)
        return grpc_slice_ref(b->data.raw.slice_buffer.slices[0]);
    grpc_byte_buffer_reader r;
    if (!grpc_byte_buffer_reader_init(&r, b))
        return grpc_empty_slice();
    grpc_slice s = grpc_byte_buffer_reader_readall(&r);
    grpc_byte_buffer_reader_destroy(&r);
    return s;
}

ProtobufCMessage *rpc_unpack(const ProtobufCMessageDescriptor *d, grpc_byte_buffer *b,
                             struct rpc_mem *m, struct err *e)
{
    grpc_slice s = b ? flatten(b) : grpc_empty_slice();
    m->no_memory = false;
    ProtobufCMessage *msg =
        protobuf_c_message_unpack(d, &m->pb, GRPC_SLICE_LENGTH(s), GRPC_SLICE_START_PTR(s));
    if (!msg && m->no_memory)
        err_nomem(e);
    else if (!msg)
        err_set(e, ERR_VALIDATION, "%zu bytes that are not a %s", GRPC_SLICE_LENGTH(s), d->name);
    grpc_slice_unref(s);
    return msg;
}

grpc_byte_buffer *rpc_pack(const ProtobufCMessage *msg)
{
    grpc_slice s = grpc_slice_malloc(protobuf_c_message_get_packed_size(msg));
    protobuf_c_message_pack(msg, GRPC_SLICE_START_PTR(s));
    grpc_byte_buffer *b = grpc_raw_byte_buffer_create(&s, 1); /* takes a reference of its own */
    grpc_slice_unref(s);
    return b;
}
