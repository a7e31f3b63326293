"""Right values of single nodes: ONNX Runtime without optimizations, or the reference evaluator of the onnx package where ONNX Runtime
has no kernel."""

import collections

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from values import BF16, NUMPY, ONNX, as_f64, value_info

onnxruntime.set_default_logger_severity(4)
KEPT_SESSIONS = 2000
# "attention_helper": a mask that broadcasts over the queries is ONNX, and ONNX Runtime's kernel refuses it.
NO_KERNEL = (
    "NOT_IMPLEMENTED",
    "Could not find an implementation",
    "Type Error",
    "under development",
    "No corresponding Numpy type",
    "data type is not supported",
    "attention_helper",
)


class Reject(Exception):
    """This node is not to be: it is wrong, or no oracle knows it."""


def session(model):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run_session(s, feeds):
    outputs = s.run(None, {name: a if isinstance(a, list) or a.ndim else a.copy() for name, a in feeds.items()})
    return [np.asarray(o) if not isinstance(o, list) else o for o in outputs]


def sigmoid(x):
    with np.errstate(all="ignore"):
        e = np.exp(-np.abs(x.astype(np.float64)))
        return np.where(x >= 0, 1 / (1 + e), e / (1 + e)).astype(x.dtype)


def defined(node, feeds):
    """The values by the operator's definition where ONNX Runtime's kernel is another thing: its Sigmoid (and with
    it Swish) is 0 from about -18 on, a
    product over an inner dimension of 0 may be memory that nobody wrote, an Einsum of empty operands may end the process (it divides
    by a dim), sums of 64-bit integers inside a mean are rounded to double, sums and products
    of integers end at the largest one instead of going round, and InstanceNormalization is x * a + (bias - mean * a), which loses
    the digits of the bias where a is large. None elsewhere."""
    arrays = [feeds[i] for i in node.input if i]
    if node.op_type == "Sigmoid" and arrays[0].dtype in (np.float32, np.float64):
        return [sigmoid(arrays[0])]
    if node.op_type == "Swish" and arrays[0].dtype in (np.float32, np.float64):
        alpha = next((a.f for a in node.attribute if a.name == "alpha"), 1.0)
        with np.errstate(all="ignore"):
            return [(arrays[0] * sigmoid(arrays[0].astype(np.float64) * alpha)).astype(arrays[0].dtype)]
    if node.op_type == "MatMul" and arrays[0].shape[-1:] == (0,) and arrays[1].ndim and arrays[1].shape[-2:][0] == 0:
        return [np.asarray(np.matmul(*arrays), arrays[0].dtype)]
    if node.op_type == "Einsum" and any(a.size == 0 for a in arrays):
        shape = np.einsum(helper.get_node_attr_value(node, "equation").decode(), *arrays).shape
        return [np.zeros(shape, arrays[0].dtype)]  # each element is a sum over nothing
    if node.op_type == "InstanceNormalization" and arrays[0].dtype in (np.float32, np.float64) and arrays[0].size:
        x, scale, bias = (a.astype(np.float64) for a in arrays)
        axes, channels = tuple(range(2, x.ndim)), (-1, *[1] * (x.ndim - 2))
        epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5)
        with np.errstate(all="ignore"):
            centred = x - x.mean(axis=axes, keepdims=True)
            normal = centred / np.sqrt((centred**2).mean(axis=axes, keepdims=True) + epsilon)
            return [(normal * scale.reshape(channels) + bias.reshape(channels)).astype(arrays[0].dtype)]
    if node.op_type in ("ReduceProd", "ReduceSum", "ReduceL1", "ReduceSumSquare") and arrays[0].dtype.kind in "iu":
        axes = next((tuple(a.ints) for a in node.attribute if a.name == "axes"), tuple(arrays[1].tolist()) if len(arrays) > 1 else ())
        keep, noop = (next((a.i for a in node.attribute if a.name == name), default) for name, default in (("keepdims", 1), ("noop_with_empty_axes", 0)))
        reduce = np.prod if node.op_type == "ReduceProd" else np.sum
        terms = np.abs(arrays[0]) if node.op_type == "ReduceL1" else arrays[0] * arrays[0] if node.op_type == "ReduceSumSquare" else arrays[0]
        return [terms if noop and not axes else np.asarray(reduce(terms, axis=axes or None, dtype=arrays[0].dtype, keepdims=bool(keep)))]
    if node.op_type == "ReduceMean" and arrays[0].dtype == np.int64 and arrays[0].size and np.abs(arrays[0].astype(float)).max() > 2.0**40:
        return [mean_of_integers(node, *arrays)]
    return None


def breaks_contract(node, feeds):
    """Where the operands are not what ONNX asks for, and ONNX Runtime's kernel does not look: a bias of a convolution with another length
    than the channels of the result is read beyond its end, or in part. A second size of a symbol makes such."""
    if node.op_type in ("Conv", "ConvTranspose") and len(node.input) > 2 and node.input[2]:
        group = next((a.i for a in node.attribute if a.name == "group"), 1)
        weight = feeds[node.input[1]].shape
        return feeds[node.input[2]].shape != ((weight[0] if node.op_type == "Conv" else weight[1] * group),)
    return False


def as_rows(node, feeds):
    """The feeds with a mask that has all its rows. An Attention with is_causal applies the causal mask beside one that broadcasts over the
    queries; ONNX Runtime and the reference evaluator both apply the causal mask of the mask's own rows, so that every query sees what the
    first one does."""
    causal = node.op_type == "Attention" and any(a.name == "is_causal" and a.i for a in node.attribute)
    mask = node.input[3] if causal and len(node.input) > 3 else ""
    if not mask or feeds[mask].ndim < 2 or feeds[mask].shape[-2] != 1:
        return feeds
    queries = feeds[node.input[0]].shape[-2]
    rows = (*feeds[mask].shape[:-2], queries, feeds[mask].shape[-1])
    return feeds | {mask: np.ascontiguousarray(np.broadcast_to(feeds[mask], rows))}


def copies(node, feeds, values):
    """Whether ONNX Runtime's Resize hands the image through, which it does when no dim changes, and with antialias along each axis that does
    not: by scales that are not 1 (7 * 1.1 is 7, too), and of a part of the image, the values are others."""
    if node.op_type != "Resize":
        return False
    before, after = feeds[node.input[0]].shape, values[0].shape
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    scales = feeds[node.input[2]] if len(node.input) > 2 and node.input[2] else np.ones(0)
    if before != after and (not attributes.get("antialias", 0) or not scales.size):
        return False
    axes = attributes.get("axes", range(len(before)))
    scaled = any(scale != 1 and before[axis] == after[axis] for axis, scale in zip(axes, scales.tolist()))
    return scaled or before == after and attributes.get("coordinate_transformation_mode") == b"tf_crop_and_resize"


def loses(node, feeds):
    """Where ONNX Runtime's kernel does not do what ONNX says, and the reference evaluator does: a NaN that is lost in a recurrent operator
    or in a sum of exponentials, the queries behind a past under a causal mask, and f16 inside a branch, which is kept in f32."""
    arrays = [a for a in feeds.values() if isinstance(a, np.ndarray)]
    if node.op_type in ("LSTM", "GRU", "RNN", "LogSoftmax", "ReduceLogSumExp"):
        return any(a.dtype.kind == "f" and not np.isfinite(a).all() for a in arrays)
    if node.op_type == "Attention":
        return len(node.input) > 4 and bool(node.input[4]) and any(a.name == "is_causal" and a.i for a in node.attribute)
    return node.op_type == "If" and any(a.dtype == np.float16 for a in arrays)


def open_to_runtimes(node, feeds, values):
    """Where a result is one of several that ONNX leaves open, or of a shape that ONNX does not give it."""
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute if a.type != a.GRAPH}
    arrays = [feeds[i] for i in node.input if i]
    if node.op_type == "MaxPool":  # the maximum of a window that lies in the pads
        lowest = np.finfo(values[0].dtype).min if values[0].dtype.kind == "f" else np.iinfo(values[0].dtype).min
        return bool((values[0] == lowest).any() and not (arrays[0] == lowest).any())
    if node.op_type.startswith("Reduce") and arrays[0].size == 0:
        axes = attributes.get("axes", arrays[1].tolist() if len(arrays) > 1 else [])
        if not axes and attributes.get("noop_with_empty_axes", 0):
            return False
        return values[0].shape != arrays[0].sum(axis=tuple(axes) or None, keepdims=bool(attributes.get("keepdims", 1))).shape
    if node.op_type == "GridSample":  # a place so far away that reflections lose all its digits
        return bool((np.abs(as_f64(arrays[1])) > 1e5).any())
    if node.op_type == "Attention":  # a mask of more batches or heads than the queries have
        heads = attributes.get("q_num_heads", arrays[0].shape[1])
        mask = feeds[node.input[3]] if len(node.input) > 3 and node.input[3] else np.zeros(0)
        if mask.ndim > 1 and mask.shape[-2] not in (1, arrays[0].shape[-2]):  # or of more queries
            return True
        return values[0].shape[0] != arrays[0].shape[0] or (mask.ndim > 2 and mask.shape[-3] not in (1, heads))
    if node.op_type == "Gemm" and arrays[0].size == 0 and values[0].size:  # no term: some releases give C without beta
        return attributes.get("beta", 1.0) != 1.0
    return False


# Operators that add up or normalize: what they compute is exact for operands that are a few roundings away.
SUMS = {
    "MatMul", "Gemm", "Conv", "ConvTranspose", "ReduceSum", "ReduceMean", "Mean", "Sum", "Add", "Sub", "CumSum", "Einsum", "AveragePool",
    "GlobalAveragePool", "BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization", "MeanVarianceNormalization",
    "LRN", "LpNormalization", "Softmax", "LogSoftmax", "Det", "ReduceSumSquare", "LSTM", "GRU", "RNN", "Resize", "DFT", "STFT", "Attention", "AffineGrid", "GridSample", "RoiAlign", "ReduceLogSumExp", "ReduceL1", "ReduceL2", "LpPool", "GlobalLpPool", "DeformConv", "Col2Im", "CumProd", "SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss", "SimplifiedLayerNormalization", "ReduceLogSum", "RMSNormalization",
    "If", "Loop", "Scan", "SequenceMap",  # with sums inside
}  # fmt: skip


def in_f32(node, feeds):
    """The feeds in f32 where bf16 operands are to be added up, of which the reference evaluator rounds every partial sum; None elsewhere."""
    if node.op_type not in SUMS or not any(getattr(a, "dtype", None) == BF16 for a in feeds.values()):
        return None
    return {n: a.astype(np.float32) if a.dtype == BF16 else a for n, a in feeds.items()}


def mean_of_integers(node, x, axes=None):
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    axes = attributes.get("axes", [] if axes is None else axes.tolist())
    if not axes and attributes.get("noop_with_empty_axes", 0):
        return x
    total = np.asarray(np.sum(x.astype(object), axis=tuple(axes) or None, keepdims=bool(attributes.get("keepdims", 1))), object)
    count = x.size // max(total.size, 1)
    return np.array([abs(v) // count * (1 if v >= 0 else -1) for v in total.ravel()], x.dtype).reshape(total.shape)


def reference_is_wrong(node, feeds, opset):
    """Where the reference evaluator does not do what ONNX says."""
    op, attributes = node.op_type, {a.name: helper.get_attribute_value(a) for a in node.attribute if a.type != a.GRAPH}
    arrays = [feeds[i] for i in node.input if i]
    if op == "Shape":  # start and end are clamped to the rank
        return any(attributes.get(a, 0) < -arrays[0].ndim for a in ("start", "end"))
    if op == "GatherElements":  # an index that is outside of its dim may be taken into another one
        size = arrays[0].shape[attributes.get("axis", 0)]
        return bool(((arrays[1] < -size) | (arrays[1] >= size)).any())
    if op == "ConvTranspose":  # the bias of the first group is everyone's
        return attributes.get("group", 1) > 1 and len(arrays) > 2
    if op == "LpPool":  # a window that reaches over the end counts as a whole one
        return bool(attributes.get("ceil_mode", 0))
    if op == "Resize" and attributes.get("mode", b"nearest") == b"nearest":  # a place between two pixels, in f64 of scales that are f32
        return len(arrays) > 1 and arrays[-1].dtype == np.float32 and bool((arrays[-1] * 64 % 1).any())
    if op == "Split" and len(arrays) > 1:  # parts that do not add up to the whole
        return int(arrays[1].sum()) != arrays[0].shape[attributes.get("axis", 0)]
    if op in ("Softmax", "LogSoftmax", "Hardmax"):  # over all axes from `axis` on
        return opset < 13
    if op == "QuantizeLinear":  # what is beyond 64 bits saturates, too
        with np.errstate(all="ignore"):
            return not (np.abs(arrays[0].astype(np.float64)) < 2.0**30 * np.abs(arrays[1].astype(np.float64)).min(initial=1)).all()
    if op == "Slice" and len(arrays) > 4:  # going down, a start before the first element is clamped to it
        axes, steps = arrays[3].tolist(), arrays[4].tolist()
        return any(step < 0 and start < -arrays[0].shape[axis] for axis, step, start in zip(axes, steps, arrays[1].tolist()))
    return False


def run_reference(model, feeds):
    return [np.asarray(x) if not isinstance(x, list) else x for x in ReferenceEvaluator(model).run(None, feeds)]


SESSION_TYPES = {np.dtype(c) for c in ("f4", "f8", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", object)}


def has_session_type(value):
    return all(a.dtype in SESSION_TYPES for a in (value if isinstance(value, list) else [value]))


class Oracle:
    """Runs single nodes. Sessions are kept by operator, attributes, element types and ranks: their dims are symbols, so that one
    serves every shape."""

    def __init__(self):
        self.sessions = collections.OrderedDict()
        self.refused = set()

    def run(self, node, feeds, opset, ir_version):
        """(values of the named outputs, "ort" or "reference"). `feeds` holds all that the node reads, captures included."""
        outputs = [o for o in node.output if o]
        if breaks_contract(node, feeds):
            raise Reject
        feeds = as_rows(node, feeds)
        try:
            values = defined(node, feeds)
        except ValueError as error:  # operands that do not fit, of a second size
            raise Reject(str(error)[:200]) from None
        if values is not None:
            return values, "definition"
        subgraphs = any(a.type == onnx.AttributeProto.GRAPH for a in node.attribute)
        if all(has_session_type(a) for a in feeds.values()) and not self.makes_unknown_type(node) and not loses(node, feeds):
            try:
                if subgraphs or any(isinstance(a, list) for a in feeds.values()):
                    return run_session(session(self.model([node], feeds, outputs, opset, ir_version)), feeds), "ort"
                values = self.run_kept(node, feeds, opset, ir_version)
                if open_to_runtimes(node, feeds, values):
                    raise Reject
                if not copies(node, feeds, values):
                    return values, "ort"
            except Reject:
                raise
            except Exception as error:
                text = str(error)
                if not any(words in text for words in NO_KERNEL):
                    raise Reject(text[:200]) from None
        if reference_is_wrong(node, feeds, opset):
            raise Reject
        try:
            model = self.model([node], feeds, outputs, opset, ir_version)
            onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
            wide = None if subgraphs else in_f32(node, feeds)
            if wide is not None:
                values, oracle = self.run(node, wide, opset, ir_version)
                return [v.astype(BF16) if v.dtype == np.float32 else v for v in values], oracle
            values = run_reference(model, feeds)
            if open_to_runtimes(node, feeds, values):
                raise Reject
            return values, "reference"
        except Exception as error:
            raise Reject(str(error)[:200]) from None

    @staticmethod
    def makes_unknown_type(node):
        return any(a.name in ("to", "dtype", "output_dtype") and a.i and NUMPY.get(a.i) not in SESSION_TYPES for a in node.attribute)

    def run_kept(self, node, feeds, opset, ir_version):
        plain = onnx.NodeProto()
        plain.CopyFrom(node)
        plain.name = ""
        # The same value twice is one input twice: the names say which positions share.
        renamed = {name: f"i{k}" for k, name in enumerate(dict.fromkeys(n for n in node.input if n))}
        del plain.input[:], plain.output[:]
        plain.input.extend(renamed.get(n, "") for n in node.input)
        plain.output.extend(f"o{k}" if o else "" for k, o in enumerate(node.output))
        arrays = {new: feeds[old] for old, new in renamed.items()}
        key = (plain.SerializeToString(), opset, tuple((a.dtype.str, a.ndim) for a in arrays.values()))
        if key in self.refused:
            raise RuntimeError("NOT_IMPLEMENTED")
        kept = self.sessions.get(key)
        if kept is None:
            infos = [helper.make_tensor_value_info(n, ONNX[a.dtype], [None] * a.ndim) for n, a in arrays.items()]
            graph = helper.make_graph([plain], "g", infos, [onnx.ValueInfoProto(name=o) for o in plain.output if o])
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)
            try:
                kept = session(model)
            except Exception as error:
                if any(words in str(error) for words in NO_KERNEL):
                    self.refused.add(key)
                raise
            self.sessions[key] = kept
            if len(self.sessions) > KEPT_SESSIONS:
                self.sessions.popitem(last=False)
        else:
            self.sessions.move_to_end(key)
        return run_session(kept, arrays)

    @staticmethod
    def model(nodes, feeds, outputs, opset, ir_version):
        graph = helper.make_graph(nodes, "g", [value_info(n, a) for n, a in feeds.items()], [onnx.ValueInfoProto(name=o) for o in outputs])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)

    def run_model(self, model, feeds, original, by_node=False):
        """{name: value} of a model's outputs: by ONNX Runtime as a whole, else node by node, where ONNX Runtime lacks a kernel or does not
        run `original` either, or when asked for."""
        names = [o.name for o in model.graph.output]
        opset = next(i.version for i in model.opset_import if i.domain in ("", "ai.onnx"))
        if not by_node and all(has_session_type(a) for a in feeds.values()):
            try:
                return dict(zip(names, run_session(session(model), feeds)))
            except Exception as error:
                if not any(words in str(error) for words in NO_KERNEL) and self.runs(original, feeds):
                    raise
        values = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer} | dict(feeds)
        for node in model.graph.node:
            reads = dict.fromkeys(captures(node))
            results, _ = self.run(node, {n: values[n] for n in reads}, opset, model.ir_version)
            values.update(zip((o for o in node.output if o), results))
        return {n: values[n] for n in names}

    @staticmethod
    def runs(model, feeds):
        try:
            run_session(session(model), feeds)
            return True
        except Exception:
            return False


def captures(node):
    """What a node reads, from outside of its subgraphs."""
    names = [i for i in node.input if i]
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else []:
            made = {i.name for i in graph.input} | {i.name for i in graph.initializer}
            for inner in graph.node:
                names += [n for n in captures(inner) if n not in made]
                made |= set(inner.output)
            names += [o.name for o in graph.output if o.name not in made]
    return names
