/*
 * export_page: a folder with a static page that classifies images in a browser by one model:
 * index.html, page.css and page.js (peer/watch/page), runtime.js (what runs ONNX there, made by
 * peer/watch/page/runtime.sh), model.onnx, and model.js, which holds the same in base64 and what
 * the page has to know of it, so that it works from any server and from none. Commands.
 */
#ifndef GRAPEVINE_PEER_COMMANDS_EXPORT_PAGE_H
#define GRAPEVINE_PEER_COMMANDS_EXPORT_PAGE_H

#include "base/fault.h"
#include "base/rc.h"

struct model;
struct model_card;
struct tensor_file;

struct export_page_options {
    const char *name;    /* the model's, for its title */
    const char *folder;  /* where the page goes: made if it is not there */
    const char *data;    /* samples to try are of these; NULL: of digits and Fashion-MNIST only */
    const char *labels;  /* the names of the classes, with commas; NULL: those of the model */
    const char *runtime; /* runtime.js; NULL: where it is made or installed */
    const struct tensor_file *file; /* of the model, whose int8 weights stay so */
};

/** A folder with somebody else's index.html is refused (RC_USAGE), and so is a model that does not
 *  classify images (RC_UNSUPPORTED). index.html is written last. RC_NOT_FOUND: there is no
 *  runtime.js; otherwise as export_onnx() and dataset_open(). */
MUST_USE enum rc export_page(const struct export_page_options *options, struct model *model,
                             const struct model_card *card, struct fault *why);

#endif
