/* Compressed bodies: what is taken, what is refused, and how long they may become. */
#include "router/http/encoding.h"
#include "tests/unit/test.h"
#include <string.h>
#define ZLIB_CONST /* next_in is const */
#include <zlib.h>
#include <zstd.h>

enum { ZSTD = 0 }; /* instead of zlib's windowBits */

static struct buf zstd_packed(const char *text, size_t n)
{
    struct buf out = BUF_INIT;
    assert_int_equal(buf_reserve(&out, ZSTD_compressBound(n)), 0);
    out.len = ZSTD_compress(out.p, ZSTD_compressBound(n), text, n, 3);
    assert_false(ZSTD_isError(out.len));
    return out;
}

static struct buf packed(const char *text, size_t n, int window)
{
    if (window == ZSTD)
        return zstd_packed(text, n);
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

TEST(names)
{
    bool known;
    assert_null(encoding_of(NULL, &known));
    assert_true(known);
    assert_null(encoding_of("Identity", &known));
    assert_true(known);
    static const char *const others[] = {"br", "zstd, zstd", "gzip, gzip", "gzip ", "g"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_null(encoding_of(others[i], &known));
        assert_false(known);
    }
    assert_ptr_not_equal(row("GZip"), row("deflate"));
}

TEST(texts_come_back)
{
    static const struct {
        const char *name;
        int window;
    } forms[] = {{"gzip", 31}, {"x-gzip", 31}, {"deflate", 15}, {"deflate", -15}, {"zstd", ZSTD}};
    char text[100000];
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

static int unpacked(const char *name, struct buf in, size_t n, size_t max, struct buf *out,
                    struct err *e)
{
    *out = (struct buf)BUF_INIT;
    return encoding_unpack(row(name), in.p, n, max, out, e);
}

TEST(what_ends_early_is_broken)
{
    static const char *const names[] = {"gzip", "zstd"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct buf in = packed("some text, some text, some text", 31, i ? ZSTD : 31);
        for (size_t n = 0; n < in.len; n++) {
            struct buf out;
            struct err e;
            assert_int_equal(unpacked(names[i], in, n, 1000, &out, &e), -1);
            assert_int_equal(e.kind, ERR_SYNTAX);
            assert_null(out.p);
        }
        buf_free(&in);
    }
}

/* Members of gzip and frames of zstd in a row, and bytes behind them that are neither. */
TEST(parts_are_one_text)
{
    static const char *const names[] = {"gzip", "zstd"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct buf in = packed("some ", 5, i ? ZSTD : 31), rest = packed("text", 4, i ? ZSTD : 31);
        struct buf out;
        struct err e;
        buf_add(&in, rest.p, rest.len);
        assert_int_equal(unpacked(names[i], in, in.len, 9, &out, &e), 0);
        assert_string_equal(out.p, "some text");
        buf_free(&out);
        buf_str(&in, "more");
        assert_int_equal(unpacked(names[i], in, in.len, 9, &out, &e), -1);
        assert_int_equal(e.kind, ERR_SYNTAX);
        buf_free(&in);
        buf_free(&rest);
    }
}

/* RFC 9659: a frame whose window is above 8 MiB is refused, not decoded in as much memory. */
TEST(zstd_windows_are_bounded)
{
    for (int log = 23; log <= 24; log++) {
        ZSTD_CCtx *c = ZSTD_createCCtx();
        char block[4096];
        ZSTD_inBuffer text = {"some text", 9, 0};
        ZSTD_outBuffer to = {block, sizeof(block), 0};
        ZSTD_CCtx_setParameter(c, ZSTD_c_windowLog, log);
        assert_int_equal(ZSTD_compressStream2(c, &to, &text, ZSTD_e_flush), 0); /* size unknown */
        assert_int_equal(ZSTD_compressStream2(c, &to, &text, ZSTD_e_end), 0);
        ZSTD_freeCCtx(c);
        struct buf in = BUF_INIT, out;
        struct err e;
        buf_add(&in, block, to.pos);
        assert_int_equal(unpacked("zstd", in, in.len, 9, &out, &e), log == 23 ? 0 : -1);
        assert_true(log == 23 || e.kind == ERR_SYNTAX);
        buf_free(&in);
        buf_free(&out);
    }
}

int main(void) { return tests_run(NULL, NULL); }
