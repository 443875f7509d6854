#include "router/page/page.h"
#include <string.h>

/* The bytes of *.html as a list of numbers: see the Makefile. */
static const unsigned char chat_page[] = {
#include "page/index.inc"
};
static const unsigned char docs_page[] = {
#include "page/docs.inc"
};

bool page_wanted(const struct call *c)
{
    const char *accept = c->x ? exchange_header(c->x, "accept") : NULL;
    return accept && strstr(accept, "text/html");
}

void page_reply(struct call *c, enum page page)
{
    if (page == PAGE_CHAT)
        buf_add(&c->out, (const char *)chat_page, sizeof(chat_page));
    else
        buf_add(&c->out, (const char *)docs_page, sizeof(docs_page));
    c->type = "text/html; charset=utf-8";
    if (c->x) {
        /* What the page shows was written by a model: it runs nothing and loads nothing. */
        exchange_add(c->x, "content-security-policy",
                     "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
                     "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                     "frame-ancestors 'none'");
        exchange_add(c->x, "x-content-type-options", "nosniff");
        exchange_add(c->x, "referrer-policy", "no-referrer");
        exchange_add(c->x, "cache-control", "no-cache");
    }
    call_reply(c);
}
