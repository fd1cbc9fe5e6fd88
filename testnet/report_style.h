/* report_style: the style sheet of the report page. */
#ifndef GRAPEVINE_TESTNET_REPORT_STYLE_H
#define GRAPEVINE_TESTNET_REPORT_STYLE_H

extern const char report_style[];

#endif
