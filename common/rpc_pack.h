/* rpc_pack.h - protobuf-c messages to and from gRPC byte buffers.
 *
 * Messages are unpacked into, and answers built in, a `struct rpc_mem`: bump memory that keeps what
 * it once had, so that a steady stream of calls allocates nothing. Its owner resets it between
 * calls; nothing in it is freed alone. A message with strings costs a third of what malloc makes of
 * it. */
#ifndef COMMON_RPC_PACK_H
#define COMMON_RPC_PACK_H
#include "common/err.h"
#include <grpc/byte_buffer.h>
#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

struct rpc_mem {
    ProtobufCAllocator pb; /* hand &m->pb to protobuf-c; its free() does nothing */
    struct rpc_chunk *top; /* newest and largest first */
    size_t limit, used;    /* bytes; the limit bounds what a hostile message can cost */
};

void rpc_mem_init(struct rpc_mem *m, size_t limit); /* m must not move afterwards */
void *rpc_mem_alloc(struct rpc_mem *m, size_t n);   /* zeroed, aligned to 16; NULL past the limit */
char *rpc_mem_strdup(struct rpc_mem *m, const char *s, size_t n); /* NUL-terminated copy */
void rpc_mem_reset(struct rpc_mem *m); /* everything in it is gone, its largest chunk is kept */
void rpc_mem_free(struct rpc_mem *m);
#define RPC_NEW(m, type, n) ((type *)rpc_mem_alloc((m), sizeof(type) * (n)))

/* The message in `b` (NULL: an empty one), living in `m`. `b` stays the caller's and may be
 * destroyed at once. NULL and ERR_VALIDATION when the bytes are not such a message or cost more
 * than m's limit. */
ProtobufCMessage *rpc_unpack(const ProtobufCMessageDescriptor *d, grpc_byte_buffer *b,
                             struct rpc_mem *m, struct err *e);
/* Caller destroys with grpc_byte_buffer_destroy(). Strings of the message must be valid UTF-8:
 * peers in other languages reject the whole message otherwise. */
grpc_byte_buffer *rpc_pack(const ProtobufCMessage *msg);
#endif
