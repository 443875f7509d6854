/* page.h - the pages for people: one file each, with nothing to load from anywhere. */
#ifndef ROUTER_API_DOCS_PAGE_H
#define ROUTER_API_DOCS_PAGE_H
#include "router/call/call.h"

enum page { PAGE_CHAT, PAGE_DOCS };
void page_reply(struct call *c, enum page page);
/* Does the client say that it wants HTML? Programs send no Accept, or one that takes anything. */
bool page_wanted(const struct call *c);
#endif
