/* report_topology: the picture of who mixes with whom, for the report page. */
#ifndef GRAPEVINE_TESTNET_REPORT_TOPOLOGY_H
#define GRAPEVINE_TESTNET_REPORT_TOPOLOGY_H

#include "testnet/text.h"

#include <stdint.h>

/** A figure of `peers` (the first 64) on a circle and the lines of `topology`, as the summary
 * spells it; who knows no such topology, NULL too, gets all lines. */
void report_add_topology(struct text *text, const char *topology, uint64_t peers);

#endif
