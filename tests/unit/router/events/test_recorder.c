/* KV events in msgpack: runs of blocks, removals, and what a batch looks like. */
#include "router/events/recorder.h"
#include "tests/unit/test.h"
#include <string.h>

static void expect(struct kv_recorder *r, const char *want, size_t n)
{
    struct buf out = BUF_INIT;
    assert_true(kv_recorder_take(r, 1.5, 2, &out));
    assert_int_equal(out.len, n);
    assert_memory_equal(out.p, want, n);
    assert_false(kv_recorder_take(r, 1.5, 2, &out)); /* nothing since */
    buf_free(&out);
}

#define HEAD(n)        "\xdd\0\0\0\3\xcb\x3f\xf8\0\0\0\0\0\0\xdd\0\0\0" n
#define STR(len, text) "\xd9" len text

TEST(one_block)
{
    static const uint64_t tokens[] = {1, 200, 70000};
    static const char want[] = HEAD("\1") "\x88" STR("\4", "type") STR("\13", "BlockStored")
        STR("\14", "block_hashes") "\xdd\0\0\0\1\xcf\x80\0\0\0\0\0\0\0" STR(
            "\21",
            "parent_block_hash") "\xc0" STR("\11",
                                            "token_ids") "\xdd\0\0\0\3\1\xcc\xc8\xce\0\1\x11"
                                                         "\x70" STR("\12", "block_size") "\3" STR(
                                                             "\7", "lora_"
                                                                   "id") "\xc0" STR("\6", "medium")
                                                             STR("\3", "GPU")
                                                                 STR("\11", "lora_name") "\xc0\2";
    struct kv_recorder r = {.block_tokens = 3};
    kv_recorder_stored(&r, UINT64_C(1) << 63, NULL, tokens);
    expect(&r, want, sizeof(want) - 1);
    kv_recorder_free(&r);
}

static uint32_t events_of(struct kv_recorder *r)
{
    struct buf out = BUF_INIT;
    uint32_t n = 0;
    if (kv_recorder_take(r, 0, 0, &out))
        n = (uint8_t)out.p[18];
    buf_free(&out);
    return n;
}

TEST(blocks_that_follow_each_other_are_one_event)
{
    static const uint64_t t[] = {1};
    uint64_t a = 1, b = 2, c = 3;
    struct kv_recorder r = {.block_tokens = 1};
    kv_recorder_stored(&r, a, NULL, t);
    kv_recorder_stored(&r, b, &a, t);
    kv_recorder_stored(&r, c, &b, t);
    assert_int_equal(events_of(&r), 1);
    kv_recorder_stored(&r, b, &a, t);
    kv_recorder_stored(&r, c, &a, t); /* another child */
    assert_int_equal(events_of(&r), 2);
    kv_recorder_stored(&r, a, NULL, t);
    kv_recorder_removed(&r, 9); /* the order stays */
    kv_recorder_stored(&r, b, &a, t);
    kv_recorder_cleared(&r);
    assert_int_equal(events_of(&r), 4);
    assert_int_equal(events_of(&r), 0);
    kv_recorder_free(&r);
}

TEST(the_end_of_a_block)
{
    static const char removed[] = HEAD("\2") "\x83" STR("\4", "type") STR("\14", "BlockRemoved")
        STR("\14", "block_hashes") "\xdd\0\0\0\1\xcd\1\1" STR("\6", "medium")
            STR("\3", "GPU") "\x81" STR("\4", "type") STR("\20", "AllBlocksCleared") "\2";
    struct kv_recorder r = {.block_tokens = 3};
    kv_recorder_removed(&r, 257);
    kv_recorder_cleared(&r);
    expect(&r, removed, sizeof(removed) - 1);
    kv_recorder_free(&r);
}

int main(void) { return tests_run(NULL, NULL); }
