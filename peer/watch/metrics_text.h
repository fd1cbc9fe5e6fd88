/* metrics_text: a peer's status in the text format of Prometheus, version 0.0.4. Pure. */
#ifndef GRAPEVINE_PEER_WATCH_METRICS_TEXT_H
#define GRAPEVINE_PEER_WATCH_METRICS_TEXT_H

struct json;

/** `status`: as node_status() makes it; what is missing or null in it is left out. From mem_*; NULL
 *  when out of memory. */
char *metrics_text(const struct json *status);

#endif
