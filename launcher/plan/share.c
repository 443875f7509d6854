#include "launcher/plan/share.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Lists the nodes that have cores of `all`. */
static uint32_t own_nodes(const cpu_set_t *all, const cpu_set_t *nodes, uint32_t n_nodes,
                          uint32_t *list)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_nodes; i++) {
        cpu_set_t both;
        CPU_AND(&both, all, &nodes[i]);
        if (CPU_COUNT(&both) > 0)
            list[n++] = i;
    }
    return n;
}

/* Takes n cores from the first-th on, counted within `all`. */
static void take(const cpu_set_t *all, uint32_t first, uint32_t n, cpu_set_t *out)
{
    uint32_t seen = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, all))
            continue;
        if (seen >= first && seen < first + n)
            CPU_SET(cpu, out);
        seen++;
    }
}

uint32_t share_cores(const cpu_set_t *all, const cpu_set_t *nodes, uint32_t n_nodes, uint32_t n,
                     uint32_t k, cpu_set_t *out)
{
    const uint32_t cores = (uint32_t)CPU_COUNT(all);
    uint32_t list[CPU_SETSIZE];
    CPU_ZERO(out);
    if (n == 0 || k >= n || cores < n)
        return 0;
    const uint32_t own = own_nodes(all, nodes, n_nodes < CPU_SETSIZE ? n_nodes : CPU_SETSIZE, list);
    if (own >= n && own % n == 0) {
        for (uint32_t i = k * (own / n); i < (k + 1) * (own / n); i++) {
            cpu_set_t both;
            CPU_AND(&both, all, &nodes[list[i]]);
            CPU_OR(out, out, &both);
        }
        return (uint32_t)CPU_COUNT(out);
    }
    const uint32_t each = cores / n, more = cores % n;
    take(all, k * each + (k < more ? k : more), each + (k < more), out);
    return (uint32_t)CPU_COUNT(out);
}

static bool number(const char **at, unsigned long *out)
{
    char *end;
    if (!isdigit((unsigned char)**at))
        return false;
    *out = strtoul(*at, &end, 10);
    *at = end;
    return *out < CPU_SETSIZE;
}

bool share_parse_cores(const char *list, cpu_set_t *out)
{
    CPU_ZERO(out);
    for (const char *at = list; *at && *at != '\n';) {
        unsigned long first, last;
        if (!number(&at, &first))
            return false;
        last = first;
        if (*at == '-' && (at++, !number(&at, &last)))
            return false;
        for (unsigned long cpu = first; cpu <= last; cpu++)
            CPU_SET(cpu, out);
        if (*at == ',')
            at++;
        else if (*at && *at != '\n')
            return false;
    }
    return true;
}

bool share_devices(const char *list, uint32_t each, uint32_t k, char *out, size_t size)
{
    const char *from = list;
    for (uint32_t i = 0; i < each * k; i++) {
        if (!(from = strchr(from, ',')))
            return false;
        from++;
    }
    const char *to = from;
    for (uint32_t i = 0; i < each; i++) {
        if (i > 0 && *to++ != ',')
            return false;
        to += strcspn(to, ",");
    }
    size_t n = (size_t)(to - from);
    if (n == 0 || n >= size)
        return false;
    memcpy(out, from, n);
    out[n] = 0;
    return true;
}
