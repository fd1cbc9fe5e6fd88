/* http_page: the status page of a peer, in one piece: HTML with its style and script. */
#ifndef GRAPEVINE_PEER_WATCH_HTTP_PAGE_H
#define GRAPEVINE_PEER_WATCH_HTTP_PAGE_H

extern const char http_page[];

#endif
