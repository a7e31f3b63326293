// The loadable module's one visible symbol.
#include "emit/ptx/ptx.h"

extern "C" __attribute__((visibility("default"))) optc::PtxEmitter *optc_ptx_emitter() {
  return optc_make_ptx_emitter();
}
