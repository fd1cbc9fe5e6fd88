/*
 * export_onnx: a model as an ONNX file (opset 17) for other runtimes. Input "input" is what the
 * user has, pixels from 0 to 1, numbers, or token ids: the normalisation is part of the graph;
 * output "logits" is what model_forward() gives in evaluation. Any batch; sequences as long as the
 * model's. Commands.
 */
#ifndef GRAPEVINE_REPLICA_FORMATS_EXPORT_ONNX_H
#define GRAPEVINE_REPLICA_FORMATS_EXPORT_ONNX_H

#include "base/fault.h"
#include "base/rc.h"

struct model;
struct model_card;
struct tensor_file;

/** RC_UNSUPPORTED names the layer that ONNX has no form for; RC_LIMIT above 2 GiB; RC_NOMEM,
 *  RC_DISK_FULL, RC_IO. The model lies in memory of the host. Weights that `file`, which it was
 *  loaded from, has as int8 (packed.h) are written so, with DequantizeLinear behind them, but for
 *  weight-normalised ones; NULL: all of them as float32. */
MUST_USE enum rc export_onnx(struct model *model, const struct model_card *card,
                             const struct tensor_file *file, const char *path, struct fault *why);

#endif
