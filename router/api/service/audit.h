/* audit.h - resources held by this process, as JSON: /debug/audit. */
#ifndef ROUTER_API_SERVICE_AUDIT_H
#define ROUTER_API_SERVICE_AUDIT_H
#include "common/buf.h"

/* Appends the open descriptors of this process: {"open", "limit", "kinds": {"socket": n, ...}}. Any
 * thread. */
void audit_descriptors(struct buf *out);
#endif
