#include "router/api/docs/page.h"
#include "page/docs.policy.h"
#include "page/index.policy.h"
#include <string.h>

/* The pages as byte lists, and their Content-Security-Policy: see the Makefile. */
static const unsigned char chat_page[] = {
#include "page/index.inc"
};
static const unsigned char chat_page_gz[] = {
#include "page/index.gz.inc"
};
static const unsigned char docs_page[] = {
#include "page/docs.inc"
};
static const unsigned char docs_page_gz[] = {
#include "page/docs.gz.inc"
};

static const struct {
    const unsigned char *html, *gz;
    size_t n_html, n_gz;
    const char *policy, *tag;
} pages[] = {
    [PAGE_CHAT] = {chat_page, chat_page_gz, sizeof(chat_page), sizeof(chat_page_gz), INDEX_POLICY,
                   INDEX_TAG},
    [PAGE_DOCS] = {docs_page, docs_page_gz, sizeof(docs_page), sizeof(docs_page_gz), DOCS_POLICY,
                   DOCS_TAG},
};

static bool header_has(const struct call *c, const char *name, const char *word)
{
    const char *value = c->x ? exchange_header(c->x, name) : NULL;
    return value && strstr(value, word);
}

bool page_wanted(const struct call *c) { return header_has(c, "accept", "text/html"); }

void page_reply(struct call *c, enum page page)
{
    c->type = "text/html; charset=utf-8";
    if (c->x) {
        exchange_add(c->x, "content-security-policy", pages[page].policy);
        exchange_add(c->x, "x-content-type-options", "nosniff");
        exchange_add(c->x, "referrer-policy", "no-referrer");
        exchange_add(c->x, "cache-control", "no-cache");
        exchange_add(c->x, "vary", "accept, accept-encoding");
        exchange_add(c->x, "etag", pages[page].tag);
    }
    if (header_has(c, "if-none-match", pages[page].tag)) {
        c->status = 304;
    } else if (header_has(c, "accept-encoding", "gzip") &&
               !header_has(c, "accept-encoding", "gzip;q=0")) {
        exchange_add(c->x, "content-encoding", "gzip");
        buf_add(&c->out, (const char *)pages[page].gz, pages[page].n_gz);
    } else {
        buf_add(&c->out, (const char *)pages[page].html, pages[page].n_html);
    }
    call_reply(c);
}
