// The module optc-images.so: ImageDecoder, as library_table.cc asks for it.
#include "runtime/cpu/lib_image_decoder.h"

extern "C" __attribute__((visibility("default"))) int optc_images_decode(OptcLibCall *call) {
  return optc_lib_image_decoder(call);
}
