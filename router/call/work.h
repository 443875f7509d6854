/* work.h - what a worker does for a call: finds its model, and runs the work() of its route. */
#ifndef ROUTER_CALL_WORK_H
#define ROUTER_CALL_WORK_H
#include "router/call/call.h"

/* Most memory of a call whose body has `n` bytes. */
size_t call_memory(size_t n);
/* Worker thread: `j` is the job of a call, which belongs to the worker until call_resume(), or
 * until another component owns it (CALL_LATER, a model that must be loaded). It runs again then. */
void call_work(struct job *j, struct tok_scratch **scratch);
#endif
