/* What the environment says of devices. */
#include "launcher/plan/machine.h"
#include "tests/unit/test.h"

static void set(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

TEST(test_devices_are_counted_as_cuda_does)
{
    static const struct {
        const char *cuda, *nvidia, *ze;
        int n;
    } rows[] = {{NULL, NULL, NULL, -1},
                {"0", NULL, NULL, 1},
                {"0,2,3", NULL, NULL, 3},
                {"GPU-1a,MIG-2b", "0", NULL, 2},
                /* all are hidden */
                {"", NULL, NULL, 0},
                {"-1", NULL, NULL, 0},
                {"", "0,1", "0", 0},
                {"0,1,-1,2", NULL, NULL, 2},
                {NULL, "0,1", "0", 2},
                {NULL, "", "0", 0},
                {NULL, NULL, "0,1", 2}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        set("CUDA_VISIBLE_DEVICES", rows[i].cuda);
        set("NVIDIA_VISIBLE_DEVICES", rows[i].nvidia);
        set("ZE_AFFINITY_MASK", rows[i].ze);
        assert_int_equal(machine_devices(), rows[i].n);
    }
}

int main(void) { return tests_run(NULL, NULL); }
