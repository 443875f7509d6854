/* pack.h - converts protobuf-c messages to and from gRPC byte buffers.
 *
 * Messages are unpacked into, and answers built in, a `struct rpc_mem`: a bump allocator that keeps
 * its memory, so that a steady stream of calls allocates nothing. Its owner resets it between
 * calls; nothing in it is freed separately. Unpacking a message with strings takes a third of the
 * time of malloc. */
#ifndef COMMON_RPC_PACK_H
#define COMMON_RPC_PACK_H
#include "common/err.h"
#include <grpc/byte_buffer.h>
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

struct rpc_mem {
    ProtobufCAllocator pb; /* pass &m->pb to protobuf-c; its free() does nothing */
    struct rpc_chunk *top; /* newest and largest first */
    size_t limit, used;    /* bytes; the limit bounds the memory of a hostile message */
    bool no_memory;        /* malloc failed; stays set until the next rpc_unpack() */
};

void rpc_mem_init(struct rpc_mem *m, size_t limit); /* m must not move afterwards */
/* zeroed, 16-byte aligned; NULL: over the limit, or out of memory */
void *rpc_mem_alloc(struct rpc_mem *m, size_t n);
char *rpc_mem_strdup(struct rpc_mem *m, const char *s, size_t n); /* NUL-terminated copy */
void rpc_mem_reset(struct rpc_mem *m); /* frees all allocations; keeps the largest chunk */
void rpc_mem_free(struct rpc_mem *m);
#define RPC_NEW(m, type, n) ((type *)rpc_mem_alloc((m), sizeof(type) * (n)))

/* Unpacks the message in `b` (NULL: an empty one) into `m`. The caller keeps `b` and may destroy it
 * at once. NULL with ERR_VALIDATION: invalid bytes, or over m's limit; with ERR_SYSTEM: out of
 * memory, which says nothing about the message. */
ProtobufCMessage *rpc_unpack(const ProtobufCMessageDescriptor *d, grpc_byte_buffer *b,
                             struct rpc_mem *m, struct err *e);
/* Caller destroys with grpc_byte_buffer_destroy(). Strings must be valid UTF-8: peers in other
 * languages reject the message otherwise. */
grpc_byte_buffer *rpc_pack(const ProtobufCMessage *msg);
#endif
