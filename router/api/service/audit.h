/* audit.h - resources held by this process, as JSON: /debug/audit. */
#ifndef ROUTER_API_SERVICE_AUDIT_H
#define ROUTER_API_SERVICE_AUDIT_H
#include "common/buf.h"

/* Appends the open descriptors of this process: {"open", "limit", "kinds": {"socket": n, ...}}. Any
 * thread. */
void audit_descriptors(struct buf *out);
/* Appends the memory of malloc: {"allocated", "free"}, in bytes over all of its arenas. `free` is
 * held by the process for later allocations. A sanitizer's allocator reports 0. Any thread. */
void audit_memory(struct buf *out);
#endif
