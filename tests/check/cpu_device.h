/* cpu_device.h - a device of the CPU backend for the checks; a test fails where it does not open.
 */
#ifndef TESTS_CHECK_CPU_DEVICE_H
#define TESTS_CHECK_CPU_DEVICE_H
#include "model-server/backend/backend.h"
#include "tests/unit/test.h"

/* threads 0: all cores; features: enum cpu_feature bits, ~0: all that are found. */
static inline struct device *device(int threads, uint64_t features)
{
    struct err e = ERR_INIT;
    struct device *d =
        backend_cpu.open(&(struct device_options){.threads = threads, .features = features}, &e);
    if (!d)
        fail_msg("%s", e.msg);
    return d;
}
#endif
