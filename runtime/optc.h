/* optc.h: the C ABI of every bundle. C99; no exception, no allocation by the caller's allocator, and none
 * at all inside run once a context exists (models with run-time objects or unbounded sizes excepted; the manifest says
 * so).
 *
 * A bundle exports one symbol, `const optc_model *NAME_model(void)`. Every call goes through the table that it points
 * to, so that several bundles link into one program, and a host that has never seen the model (Python, a server, a
 * test) can load it and learn its signature. Structs that are passed in arrays are fixed for an ABI version; all others
 * begin with struct_size, so that they can grow.
 */
#ifndef OPTC_H
#define OPTC_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define OPTC_ABI_VERSION 1
#define OPTC_MAX_RANK 8

typedef enum optc_status {
  OPTC_OK = 0,
  OPTC_INVALID_ARGUMENT = 1, /* wrong type, rank, dims or null pointer: nothing was run */
  OPTC_BUFFER_TOO_SMALL = 2, /* an output's needed_bytes says how much */
  OPTC_MODEL_FAULT = 3,      /* the model itself: index out of range, shapes that do not broadcast */
  OPTC_OUT_OF_MEMORY = 4,
  OPTC_IO = 5,     /* weights missing, truncated, or not those that this code was made for */
  OPTC_DEVICE = 6, /* no driver, no card, no code for it in the bundle, or the driver's own error */
  OPTC_CANCELLED = 7,
  OPTC_INTERNAL = 101
} optc_status;

typedef enum optc_device_type { OPTC_CPU = 1, OPTC_CUDA = 2 } optc_device_type; /* DLPack's numbers */

/* Data of one tensor, owned by the caller. Row-major, contiguous; sub-byte types packed as ONNX packs them. */
typedef struct optc_tensor {
  void *data;
  size_t capacity_bytes; /* of data; an output may be larger than its value */
  size_t needed_bytes;   /* out: for outputs, always the size of the value */
  int32_t type;          /* onnx.TensorProto.DataType */
  int32_t rank;
  int64_t dims[OPTC_MAX_RANK]; /* inputs: given; outputs: written by optc_run */
  int32_t device_type, device_id;
} optc_tensor;

/* An element of a tensor of type 8 (string): its data is an array of these. The characters of outputs live until the
 * context's next run. */
typedef struct optc_string {
  const char *data;
  size_t size;
} optc_string; /* not terminated */

/* Sequences, optionals and maps: made by the caller for inputs; those of outputs live until the context's next run,
 * with all they hold. */
typedef struct optc_object optc_object;
typedef struct optc_value {
  optc_tensor tensor;
  optc_object *object;
} optc_value; /* object is null for tensors */
struct optc_object {
  int32_t kind; /* 1 sequence; 2 optional: count is 0 or 1; 3 map: items[0] the keys, items[1] the values */
  size_t count;
  optc_value *items;
};

typedef struct optc_dim {
  const char *symbol;
  int64_t value, min, max;
} optc_dim; /* symbol null: value holds; max -1: unbounded */
/* kind: 0 a tensor, else as in optc_object; type: of the elements, inside an object of its tensors' */
typedef struct optc_value_info {
  const char *name;
  int32_t kind, type, rank;
  optc_dim dims[OPTC_MAX_RANK];
} optc_value_info;

/* An input and an output that are one memory of the caller (`--alias past=present`): a cache, a hidden state. A run
 * takes the same data pointer for both, reads the input there and leaves the output; after an error its contents are
 * undefined.
 * axis -1: both have the same dims. Else the output is longer along that axis, and the memory has room for more: it is
 * row-major with as many steps along the axis as capacity_bytes of the output holds, which is a whole number of them.
 * So what was written stays where it is, and only what is new is written: the next run gives the dims that this one
 * left. Aliases whose inputs have one length along their axis have one number of steps. */
typedef struct optc_alias {
  size_t input, output; /* positions in the signature */
  int32_t axis;
} optc_alias;

typedef struct optc_weights optc_weights; /* shared by any number of contexts and threads */
typedef struct optc_context optc_context; /* one run at a time */

typedef struct optc_options {
  size_t struct_size;
  int32_t device_type, device_id; /* default: the CPU */
  int32_t threads;                /* 0: physical cores; ignored with a caller's pool */
  void (*parallel_for)(void *pool, int64_t tasks, void (*task)(void *, int64_t), void *argument);
  void *pool;
  const char *weights_path; /* null: beside the library, or embedded */
  int (*read_weights)(void *user, uint64_t offset, void *to,
                      size_t bytes); /* decryption, other stores; returns 0 when good */
  void *user;
  int32_t check_weights; /* 1: verify every checksum at load */
  void *workspace;       /* of any alignment, one context's; null: the context allocates its own, once */
  size_t workspace_bytes;
} optc_options;

typedef struct optc_api {
  size_t struct_size;
  size_t (*input_count)(void), (*output_count)(void);
  const optc_value_info *(*input_info)(size_t), *(*output_info)(size_t);
  const char *(*manifest_json)(void); /* embedded, or read from its file; null where that is missing */
  optc_status (*weights_load)(const optc_options *, optc_weights **);
  void (*weights_release)(optc_weights *);
  optc_status (*context_create)(optc_weights *, const optc_options *, optc_context **);
  void (*context_destroy)(optc_context *);
  optc_status (*output_dims)(const optc_context *, const optc_value *inputs,
                             optc_value *outputs);                         /* upper bounds, or -1, where data decides */
  optc_status (*workspace_bytes)(const optc_value *inputs, size_t *bytes); /* exact; before any context */
  optc_status (*run)(optc_context *, const optc_value *inputs, optc_value *outputs);
  optc_status (*run_async)(optc_context *, const optc_value *inputs, optc_value *outputs,
                           void *cuda_stream); /* device tensors only */
  optc_status (*cancel)(optc_context *);       /* from another thread */
  optc_status (*profile)(optc_context *, int32_t on, const char **json);
  const char *(*last_error)(const optc_context *); /* null context: what the calling thread's last
                                                      call failed for that had none: loads, creates, output_dims,
                                                      workspace_bytes, null arguments */
  /* The most that a context of so many threads (0: as many as there are processors) takes for any dims in the ranges of
   * the inputs: a workspace of it serves every run. OPTC_INVALID_ARGUMENT where a dim that it depends on has no upper
   * bound. Sizes that only the run finds lie outside the workspace. */
  optc_status (*workspace_peak)(int32_t threads, size_t *bytes);
  size_t (*alias_count)(void);
  const optc_alias *(*alias_info)(size_t);
} optc_api;

typedef struct optc_model {
  size_t struct_size;
  uint32_t abi_version;
  const optc_api *api;
} optc_model;

/* One inline call each, so that users write optc_run(model, ...) and never see the table. */
static inline optc_status optc_run(const optc_model *model, optc_context *context, const optc_value *inputs,
                                   optc_value *outputs) {
  return model->api->run(context, inputs, outputs);
}

#ifdef __cplusplus
}
#endif
#endif
