// fuzz-sources: common/image/data_url.c common/err.c common/utf8.c common/buf.c
#include "common/image/data_url.h"
#include "common/buf.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(const char *url, size_t n, enum data_url_rule rule)
{
    enum { MOST = 4096 };
    struct data_url u;
    struct err e = ERR_INIT;
    if (data_url_decode(url, n, rule, MOST, &u, &e)) {
        if (e.kind == ERR_NONE || !e.msg[0] || strchr(e.msg, '\n') || u.bytes || u.n)
            abort();
        return;
    }
    /* Strict base64 has one spelling: the file encoded again is the end of the URL. */
    struct buf again = BUF_INIT;
    buf_base64(&again, u.bytes, u.n);
    if (u.n > MOST || strlen(u.mime) >= sizeof(u.mime) || u.n >= n ||
        (rule == DATA_URL_TGI &&
         (again.len >= n || (again.len && memcmp(url + n - again.len, again.p, again.len) != 0))))
        abort();
    buf_free(&again);
    free(u.bytes);
}

/* What TGI's rule takes, OpenAI's takes as well. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct data_url u;
    struct err e = ERR_INIT;
    const char *url = (const char *)data;
    check(url, n, DATA_URL_TGI);
    check(url, n, DATA_URL_OPENAI);
    if (data_url_decode(url, n, DATA_URL_TGI, 4096, &u, &e) == 0) {
        free(u.bytes);
        if (data_url_decode(url, n, DATA_URL_OPENAI, 4096, &u, &e))
            abort();
        free(u.bytes);
    }
    return 0;
}
