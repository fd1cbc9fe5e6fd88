/*
 * page: what browsers show, as strings made from the files of this folder at build time
 * (README.md).
 */
#ifndef GRAPEVINE_PEER_WATCH_PAGE_PAGE_H
#define GRAPEVINE_PEER_WATCH_PAGE_PAGE_H

extern const char page_live[];           /* the page of a running peer, whole */
extern const char page_style[];          /* for a <style> */
extern const char page_charts[];         /* for a <script>: charts.draw(element, {charts: [...]}) */
extern const char page_classify[];       /* the page of an exported model, ... */
extern const char page_classify_style[]; /* ... its page.css ... */
extern const char page_classify_script[]; /* ... and its page.js */

#endif
