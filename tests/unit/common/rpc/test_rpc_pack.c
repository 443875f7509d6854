// A message survives the trip through byte buffers, and hostile bytes cost no more than the limit.
#include "common/rpc/pack.h"
#include "proto/generate.pb-c.h"
#include "tests/unit/test.h"
#include <grpc/grpc.h>
#include <stdlib.h>
#include <string.h>

/* The linker sends every call of malloc in this program through here. */
void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
static _Thread_local int mallocs_left = -1; /* until malloc fails; -1: never */

void *__wrap_malloc(size_t n)
{
    if (mallocs_left == 0)
        return NULL;
    mallocs_left -= mallocs_left > 0;
    return __real_malloc(n);
}

#define DECODE (&generate__v3__decode_request__descriptor)

TEST(round_trip)
{
    struct rpc_mem m;
    struct err e = ERR_INIT;
    rpc_mem_init(&m, 1 << 20);
    for (int turn = 0; turn < 3; turn++) {
        Generate__V3__CachedBatch b = GENERATE__V3__CACHED_BATCH__INIT, *list[] = {&b, &b, &b};
        uint64_t ids[] = {1, 2, UINT64_MAX};
        b.id = 77, b.n_request_ids = 3, b.request_ids = ids;
        Generate__V3__DecodeRequest r = GENERATE__V3__DECODE_REQUEST__INIT;
        r.batches = list, r.n_batches = 3;
        grpc_byte_buffer *buf = rpc_pack(&r.base);
        Generate__V3__DecodeRequest *back = (void *)rpc_unpack(DECODE, buf, &m, &e);
        grpc_byte_buffer_destroy(buf);
        assert_non_null(back);
        assert_int_equal(back->n_batches, 3);
        assert_int_equal(back->batches[2]->id, 77);
        assert_true(back->batches[2]->request_ids[2] == UINT64_MAX);
        rpc_mem_reset(&m);
    }
    rpc_mem_free(&m);
}

TEST(many_slices_and_none)
{
    struct rpc_mem m;
    struct err e = ERR_INIT;
    rpc_mem_init(&m, 1 << 20);
    grpc_slice s[2] = {grpc_slice_from_copied_string("\x0a\x02"),
                       grpc_slice_from_copied_string("\x08\x05")};
    grpc_byte_buffer *buf = grpc_raw_byte_buffer_create(s, 2);
    Generate__V3__DecodeRequest *r = (void *)rpc_unpack(DECODE, buf, &m, &e);
    assert_non_null(r);
    assert_int_equal(r->batches[0]->id, 5);
    grpc_byte_buffer_destroy(buf);
    grpc_slice_unref(s[0]), grpc_slice_unref(s[1]);
    r = (void *)rpc_unpack(DECODE, NULL, &m, &e);
    assert_non_null(r);
    assert_int_equal(r->n_batches, 0);
    rpc_mem_free(&m);
}

TEST(hostile)
{
    struct rpc_mem m;
    struct err e = ERR_INIT;
    rpc_mem_init(&m, 64 << 10);
    grpc_slice s = grpc_slice_malloc(40000); /* 20 000 empty sub-messages of two bytes */
    for (size_t i = 0; i < 40000; i += 2)
        GRPC_SLICE_START_PTR(s)[i] = 0x0a, GRPC_SLICE_START_PTR(s)[i + 1] = 0;
    grpc_byte_buffer *buf = grpc_raw_byte_buffer_create(&s, 1);
    assert_null(rpc_unpack(DECODE, buf, &m, &e));
    assert_int_equal(e.kind, ERR_VALIDATION);
    assert_true(m.used <= m.limit);
    grpc_byte_buffer_destroy(buf);
    grpc_slice_unref(s);
    s = grpc_slice_from_copied_string("\x0a\x7fgarbage");
    buf = grpc_raw_byte_buffer_create(&s, 1);
    rpc_mem_reset(&m);
    assert_null(rpc_unpack(DECODE, buf, &m, &e));
    grpc_byte_buffer_destroy(buf);
    grpc_slice_unref(s);
    rpc_mem_free(&m);
}

/* 1,000 messages take more than one chunk: the first, or a later one, is not to be had. */
TEST(out_of_memory)
{
    struct rpc_mem m;
    rpc_mem_init(&m, 1 << 20);
    grpc_slice s = grpc_slice_malloc(2000);
    for (size_t i = 0; i < 2000; i += 2)
        GRPC_SLICE_START_PTR(s)[i] = 0x0a, GRPC_SLICE_START_PTR(s)[i + 1] = 0;
    grpc_byte_buffer *buf = grpc_raw_byte_buffer_create(&s, 1);
    for (int left = 0; left < 2; left++) {
        struct err e = ERR_INIT;
        mallocs_left = left;
        const ProtobufCMessage *msg = rpc_unpack(DECODE, buf, &m, &e);
        mallocs_left = -1;
        assert_null(msg);
        assert_int_equal(e.kind, ERR_SYSTEM);
        assert_string_equal(e.msg, "out of memory");
        rpc_mem_free(&m);
    }
    struct err e = ERR_INIT;
    const Generate__V3__DecodeRequest *r = (void *)rpc_unpack(DECODE, buf, &m, &e);
    assert_non_null(r);
    assert_int_equal(r->n_batches, 1000);
    grpc_byte_buffer_destroy(buf);
    grpc_slice_unref(s);
    rpc_mem_free(&m);
}

int main(void)
{
    grpc_init();
    int rc = tests_run(NULL, NULL);
    grpc_shutdown_blocking();
    return rc;
}
