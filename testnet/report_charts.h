/*
 * report_charts: the curves of a report page: data and the script that draws them, which is the one
 * of a peer's live page (peer/watch/page).
 */
#ifndef GRAPEVINE_TESTNET_REPORT_CHARTS_H
#define GRAPEVINE_TESTNET_REPORT_CHARTS_H

#include "testnet/history.h"
#include "testnet/text.h"

enum { REPORT_POINTS_MAX = 400 }; /* drawn of a series; more are thinned */

/** What of `history` is known is drawn, below a heading. */
void report_add_charts(struct text *text, const struct history *history);

#endif
