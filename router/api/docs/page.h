/* page.h - the HTML pages, one self-contained file each without external resources. */
#ifndef ROUTER_API_DOCS_PAGE_H
#define ROUTER_API_DOCS_PAGE_H
#include "router/call/call.h"

enum page { PAGE_CHAT, PAGE_DOCS };
void page_reply(struct call *c, enum page page);
/* Does the client ask for HTML? Programs send no Accept header, or one that accepts anything. */
bool page_wanted(const struct call *c);
#endif
