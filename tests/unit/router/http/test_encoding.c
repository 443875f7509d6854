/* Compressed bodies: what is taken, what is refused, and how long they may become. */
#include "router/http/encoding.h"
#include "tests/unit/test.h"
#include <string.h>
#define ZLIB_CONST /* next_in is const */
#include <zlib.h>

static struct buf packed(const char *text, size_t n, int window)
{
    struct buf out = BUF_INIT;
    unsigned char block[4096];
    z_stream z = {.next_in = (const unsigned char *)text, .avail_in = (unsigned)n};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY), Z_OK);
    int rc = Z_OK;
    while (rc == Z_OK) {
        z.next_out = block;
        z.avail_out = sizeof(block);
        rc = deflate(&z, Z_FINISH);
        buf_add(&out, (const char *)block, sizeof(block) - z.avail_out);
    }
    deflateEnd(&z);
    return out;
}

static const struct encoding *row(const char *name)
{
    bool known;
    const struct encoding *c = encoding_of(name, &known);
    assert_true(known && c);
    return c;
}

static void names(void **state)
{
    bool known;
    (void)state;
    assert_null(encoding_of(NULL, &known));
    assert_true(known);
    assert_null(encoding_of("Identity", &known));
    assert_true(known);
    static const char *const others[] = {"br", "zstd", "gzip, gzip", "gzip ", "g"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_null(encoding_of(others[i], &known));
        assert_false(known);
    }
    assert_ptr_not_equal(row("GZip"), row("deflate"));
}

static void texts_come_back(void **state)
{
    static const struct {
        const char *name;
        int window;
    } forms[] = {{"gzip", 31}, {"x-gzip", 31}, {"deflate", 15}, {"deflate", -15}};
    char text[100000];
    (void)state;
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (char)('a' + i * i % 23);
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        for (size_t n = 0; n <= sizeof(text); n = n * 3 + 1) {
            struct buf in = packed(text, n, forms[i].window), out = BUF_INIT;
            struct err e;
            assert_int_equal(encoding_unpack(row(forms[i].name), in.p, in.len, n, &out, &e), 0);
            assert_int_equal(out.len, n);
            assert_true(n == 0 || !memcmp(out.p, text, n));
            buf_free(&out);
            if (n) {
                assert_int_equal(encoding_unpack(row(forms[i].name), in.p, in.len, n - 1, &out, &e),
                                 -1);
                assert_int_equal(e.kind, ERR_TOO_LARGE);
                assert_int_equal(out.len, 0);
            }
            buf_free(&in);
        }
}

static void what_ends_early_is_broken(void **state)
{
    struct buf in = packed("some text, some text, some text", 31, 31);
    (void)state;
    for (size_t n = 0; n < in.len; n++) {
        struct buf out = BUF_INIT;
        struct err e;
        assert_int_equal(encoding_unpack(row("gzip"), in.p, n, 1000, &out, &e), -1);
        assert_int_equal(e.kind, ERR_SYNTAX);
        assert_null(out.p);
    }
    buf_free(&in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(texts_come_back),
        cmocka_unit_test(what_ends_early_is_broken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
