# check: every .onnx file named on the command line against the rules of ONNX, shapes included.
import sys

import onnx

for name in sys.argv[1:]:
    model = onnx.load(name)
    onnx.checker.check_model(model, full_check=True)
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    assert inferred.graph.output[0].name == "logits", name
print("checked", len(sys.argv) - 1)
