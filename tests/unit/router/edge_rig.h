/* edge_rig.h - one rig for a whole file of tests. */
#ifndef TEST_EDGE_RIG_H
#define TEST_EDGE_RIG_H
#include "tests/unit/router/rig.h"

static struct rig rig;
static struct buf b; /* what was read last */

UNUSED static int edge_up(void **state)
{
    (void)state;
    rig_start(&rig, NULL, 300);
    return 0;
}
UNUSED static int edge_down(void **state)
{
    (void)state;
    rig_settle(&rig);
    rig_stop(&rig);
    buf_free(&b);
    return 0;
}
#endif
