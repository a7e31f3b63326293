// The network as a bundle, compiled by optc with --name embedder.
#include <embedder.h>

#include <stdexcept>

#include "encoder.h"

namespace {

const optc_api &api() { return *embedder_model()->api; }

void check(optc_status status, const optc_context *context) {
  if (status != OPTC_OK) throw std::runtime_error(api().last_error(context));
}

// A context of one thread, with all the memory that any batch can take: a run allocates nothing.
class BundleEncoder : public Encoder {
 public:
  BundleEncoder(optc_weights *weights, size_t workspace) : workspace_(new char[workspace]) {
    optc_options options = {};
    options.struct_size = sizeof options;
    options.threads = 1;
    options.workspace = workspace_.get();
    options.workspace_bytes = workspace;
    check(api().context_create(weights, &options, &context_), nullptr);
  }
  ~BundleEncoder() override { api().context_destroy(context_); }
  BundleEncoder(const BundleEncoder &) = delete;
  BundleEncoder &operator=(const BundleEncoder &) = delete;

  void run(const Batch &batch, float *hidden) override {
    check(embedder_run(context_, batch.texts, batch.length, batch.ids, batch.mask, batch.types, hidden), context_);
  }

 private:
  std::unique_ptr<char[]> workspace_;
  optc_context *context_ = nullptr;
};

class Bundle : public EncoderModel {
 public:
  Bundle() {
    const optc_value_info &ids = *api().input_info(0), &hidden = *api().output_info(0);
    most_texts = ids.dims[0].max;
    longest = ids.dims[1].max;
    width = hidden.dims[2].value;
    if (most_texts < 1 || longest < 1)
      throw std::runtime_error(
          "the bundle's batches have no bound: compile it with --dim batch=1..32 --dim sequence=1..128");
    check(api().workspace_peak(1, &workspace_), nullptr);
    optc_options options = {};
    options.struct_size = sizeof options;
    check(api().weights_load(&options, &weights_), nullptr);
    engine = "optc";
  }
  ~Bundle() override { api().weights_release(weights_); }
  Bundle(const Bundle &) = delete;
  Bundle &operator=(const Bundle &) = delete;

  std::unique_ptr<Encoder> encoder() override { return std::make_unique<BundleEncoder>(weights_, workspace_); }

 private:
  optc_weights *weights_ = nullptr;
  size_t workspace_ = 0;
};

}  // namespace

std::unique_ptr<EncoderModel> open_encoder_model(const std::string &model) {
  if (!model.empty())
    throw std::runtime_error("--model is for the server on ONNX Runtime; this one has its model compiled in");
  return std::make_unique<Bundle>();
}
