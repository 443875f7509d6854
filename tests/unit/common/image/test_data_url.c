// Data URLs by both rules; base64 as RFC 4648 has it.
#include "common/buf.h"
#include "common/image/data_url.h"
#include "tests/unit/test.h"
#include <string.h>

enum { MOST = 1000 };

static int decode(const char *url, enum data_url_rule rule, struct data_url *out, struct err *e)
{
    *e = (struct err)ERR_INIT;
    return data_url_decode(url, strlen(url), rule, MOST, out, e);
}

TEST(urls)
{
    static const struct {
        const char *url, *mime; /* NULL: refused */
        bool tgi, openai;
    } rows[] = {{"data:image/png;base64,YWJj", "image/png", true, true},
                {"data:;base64,YWJj", "", true, true},
                {"data:image/PNG;base64,YWJj", "image/png", true, true},
                {"data:image/svg+xml;base64,YWJj", "image/svg+xml", true, true},
                {"DATA:image/png;BASE64,YWJj", "image/png", false, true},
                {"data:image/png;charset=x;base64,YWJj", "image/png", false, true},
                {"data:image/png; base64,YWJj", "image/png", false, true},
                {"data:image/png;base64, YW\r\nJj\n", "image/png", false, true},
                {"data:image/png;base64,%59W%4aj%0A", "image/png", false, true},
                {"data:image/png;base64,YWJ%", NULL, false, false},
                {"data:image/png;base64,YWJjY", NULL, false, false},
                {"data:image/png;base64,YWJj====", NULL, false, false},
                {"data:image/png,YWJj", NULL, false, false},
                {"data:image/pngbase64,YWJj", NULL, false, false},
                {"data:image/png;base64;x=1,YWJj", NULL, false, false},
                {"data:image/png;base64YWJj", NULL, false, false},
                {"data:image png;base64,YWJj", NULL, false, false},
                {"data:image\n;base64,YWJj", NULL, false, false},
                {"datum:image/png;base64,YWJj", NULL, false, false},
                {"data:", NULL, false, false},
                {"data", NULL, false, false},
                {"", NULL, false, false},
                {"https://a/b;base64,YWJj", NULL, false, false}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (int rule = DATA_URL_TGI; rule <= DATA_URL_OPENAI; rule++) {
            struct data_url u;
            struct err e;
            const int rc = decode(rows[i].url, (enum data_url_rule)rule, &u, &e);
            if ((rc == 0) != (rule == DATA_URL_TGI ? rows[i].tgi : rows[i].openai))
                fail_msg("%s by rule %d: %d %s", rows[i].url, rule, rc, e.msg);
            if (rc) {
                assert_true(e.kind == ERR_VALIDATION && !u.bytes && !u.n);
                continue;
            }
            assert_string_equal(u.mime, rows[i].mime);
            assert_true(u.n == 3 && !memcmp(u.bytes, "abc", 3));
            free(u.bytes);
        }
    assert_true(data_url_is("DaTa:", 5) && !data_url_is("data", 4) && !data_url_is("", 0));
}

TEST(encoders_differ)
{
    static const char *const spellings[] = {"+/8=", "-_8=", "-_8", "+/8", "%2B%2F8%3D", "+ /8=\n"};
    for (size_t i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++) {
        char url[64];
        struct data_url u;
        struct err e;
        snprintf(url, sizeof(url), "data:;base64,%s", spellings[i]);
        if (decode(url, DATA_URL_OPENAI, &u, &e) != 0)
            fail_msg("%s: %s", url, e.msg);
        assert_true(u.n == 2 && !memcmp(u.bytes, "\xfb\xff", 2));
        free(u.bytes);
        assert_int_equal(decode(url, DATA_URL_TGI, &u, &e), i ? -1 : 0);
        free(u.bytes);
    }
}

TEST(base64)
{
    static const struct {
        const char *text, *bytes; /* NULL: refused */
    } rows[] = {{"", ""},
                {"Zg==", "f"},
                {"Zm8=", "fo"},
                {"Zm9v", "foo"},
                {"Zm9vYg==", "foob"},
                {"+/+/", "\xfb\xff\xbf"},
                {"Zg", NULL},
                {"Zg=", NULL},
                {"Zm9", NULL},
                {"Z", NULL},
                {"Zh==", NULL},
                {"Zm9=", NULL},
                {"====", NULL},
                {"Z===", NULL},
                {"=Zg=", NULL},
                {"Zg==Zg==", NULL},
                {"Zm9v\n", NULL},
                {"Zm 9", NULL},
                {"Zm9v YmFy", NULL},
                {"-_-_", NULL},
                {"Zm\xc3\xa4", NULL},
                {"Zm9vZ@==", NULL}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t out[16];
        size_t n = 99;
        struct err e = ERR_INIT;
        const int rc = base64_decode(rows[i].text, strlen(rows[i].text), out, &n, &e);
        if ((rc == 0) != !!rows[i].bytes)
            fail_msg("%s: %d %s", rows[i].text, rc, e.msg);
        if (rc == 0)
            assert_true(n == strlen(rows[i].bytes) && !memcmp(out, rows[i].bytes, n));
        else
            assert_int_equal(strncmp(e.msg, "base64 encoding is invalid: ", 28), 0);
    }
}

TEST(there_and_back)
{
    uint8_t bytes[300], out[300];
    for (size_t n = 0; n < sizeof(bytes); n++) {
        struct buf text = BUF_INIT;
        struct err e = ERR_INIT;
        size_t got = 0;
        bytes[n] = (uint8_t)(n * 167 + 13);
        buf_base64(&text, bytes, n);
        assert_int_equal(base64_decode(text.p ? text.p : "", text.len, out, &got, &e), 0);
        assert_true(got == n && !memcmp(out, bytes, n));
        buf_free(&text);
    }
}

TEST(sizes)
{
    for (size_t n = MOST - 3; n <= MOST + 3; n++) {
        static const uint8_t zeros[MOST + 3];
        struct buf url = BUF_INIT;
        struct data_url u;
        struct err e;
        buf_str(&url, "data:image/png;base64,");
        buf_base64(&url, zeros, n);
        const int rc = decode(url.p, DATA_URL_OPENAI, &u, &e);
        assert_int_equal(rc, n <= MOST ? 0 : -1);
        if (rc)
            assert_string_equal(e.msg, "the data URL holds more than 1000 bytes");
        free(u.bytes);
        buf_free(&url);
    }
    struct data_url u;
    struct err e;
    char url[400] = "data:";
    memset(url + 5, 'a', 200);
    strcat(url, ";base64,");
    assert_int_equal(decode(url, DATA_URL_TGI, &u, &e), -1);
    assert_string_equal(e.msg, "the media type of the data URL is too long");
}

int main(void) { return tests_run(NULL, NULL); }
