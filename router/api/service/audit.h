/* audit.h - what this process holds, as JSON: /debug/audit. */
#ifndef ROUTER_API_SERVICE_AUDIT_H
#define ROUTER_API_SERVICE_AUDIT_H
#include "common/buf.h"

/* {"open", "limit", "kinds": {"socket": n, ...}} of this process. Any thread. */
void audit_descriptors(struct buf *out);
#endif
