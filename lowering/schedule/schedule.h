#pragma once
// How each kernel runs: a Schedule (ir/program/schedule.h). One file a template of runtime/cpu or emit/ptx says when a
// kernel has its form and what the template is given; choose.cc takes what was measured, else the first that is
// allowed, of those that have tiles the quickest by the model.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ir/program/contraction_view.h"
#include "ir/program/program.h"
#include "lowering/lower.h"

namespace optc {

// The templates that can run a kernel, best first, with all but their tiles, packed constants and scratch buffers.
// Empty: the kernel runs as its plain nest or library call. Asks the kernel alone: fusion too asks, of kernels that are
// not made yet.
std::vector<Schedule> candidates(const Program &program, const Kernel &kernel, const LoweringOptions &options);
// Whether a template that can run `before` would be lost if the kernel were `after`: of a product or a convolution that
// runs as plain loops, nothing is saved by a fusion.
bool forfeits_template(const Program &program, const Kernel &before, const Kernel &after,
                       const LoweringOptions &options);

// Kernel::schedule of every kernel; lays out its constants and makes its scratch buffers. Appends what was weighed.
// kUsage where options.tuning names a way that a kernel of the form has not.
Status choose_schedules(Program &program, const LoweringOptions &options, Steps &steps,
                        std::vector<ScheduleChoice> &choices, Diagnostics &diagnostics);
// What decides how a kernel should run, as 32 hexadecimal digits: the hash of its loops, stages, types, layouts and
// contraction, without the names of anything and the values of constants. Kernels of one form have the same ways.
std::string schedule_form(const Program &program, const Kernel &kernel, const LoweringOptions &options);
// Kernel::cost for every kernel, as expressions of the dims: the bytes of the buffers that it reads and writes, each
// once, and its arithmetic operations (a product and its sum are two, exp and its like 20).
void estimate_costs(Program &program);

// --- templates (one file each): candidates of a kernel, and what is laid out for one that was chosen

// Adds a constant of that content to the Program, or gives the one that it has.
using AddConstant = std::function<BufferId(const std::string &name, Constant value)>;

// Bytes of scratch of a task of runtime/cpu/gemm_i8.h: exact for sizes that are known, else a bound.
Dim integer_gemm_scratch(Dim rows, Dim inner, bool packed);
std::optional<GemmSchedule> gemm_schedule(const Program &program, const Kernel &kernel);
void prepare(const Program &program, const Kernel &kernel, const AddConstant &add, GemmSchedule &schedule);

// A product by a constant that stays quantized.
std::optional<GemmBlocksSchedule> gemm_blocks_schedule(const Program &program, const Kernel &kernel);
void prepare(const Program &program, const Kernel &kernel, const AddConstant &add, GemmBlocksSchedule &schedule);

// The algorithm that suits the shape, then the direct one, then others that can compute it.
std::vector<Schedule> convolution_schedules(const Program &program, const Kernel &kernel,
                                            const LoweringOptions &options);
// Whether a convolution reads its input by any strides: its template copies bands of it anyway. (On a GPU, whose
// kernels choose later, it is told from what does not depend on the image.)
bool reads_any_strides(const Program &program, const ConvolutionView &view, const LoweringOptions &options);
// The image as the templates see it: a line is one row high, of the direct one a column of one-pixel rows, since bands
// of rows are what its tasks divide and copy. `strides`: of the input's dims.
ConvolutionOperands convolution_operands(const ConvolutionView &view, const std::vector<Dim> &strides,
                                         bool line_is_column);
Dim convolution_outputs(const ConvolutionOperands &operands);  // pixels of all images
// Stored with the channel innermost (or there is but one, or one pixel).
bool channels_innermost(const Buffer &b);
void prepare_convolution(const Program &program, const Kernel &kernel, const AddConstant &add, Schedule &schedule);

// In int32, by runtime/cpu/conv_i8.h.
std::vector<Schedule> integer_convolution_schedules(const Program &program, const Kernel &kernel,
                                                    const ConvolutionView &view);
void prepare(const Program &program, const Kernel &kernel, const AddConstant &add,
             ConvolutionIntegerSchedule &schedule);

std::optional<AttentionSchedule> attention_schedule(const Program &program, const Kernel &kernel);

std::optional<RecurrentSchedule> recurrent_schedule(const Program &program, const Kernel &kernel);
void prepare(Program &program, const Kernel &kernel, const AddConstant &add, RecurrentSchedule &schedule);

// A GPU's: the steps of a layer whose inputs are summed (lowering/fusion/recurrent.cc).
std::optional<RecurrentStepsSchedule> recurrent_steps_schedule(const Program &program, const Kernel &kernel,
                                                               const LoweringOptions &options);
void prepare(const Program &program, const Kernel &kernel, const AddConstant &add, RecurrentStepsSchedule &schedule);

std::optional<GemmTensorCoreSchedule> tensor_core_schedule(const Program &program, const Kernel &kernel,
                                                           F32Products f32);
// The same product on warpgroups, where the targets have them and tensor maps can name its operands.
std::optional<GemmWarpgroupSchedule> warpgroup_schedule(const Program &program, const Kernel &kernel,
                                                        const GemmTensorCoreSchedule &product,
                                                        const LoweringOptions &options);
// A convolution likewise: its image by im2col.
std::optional<ConvolutionWarpgroupSchedule> convolution_warpgroup_schedule(const Program &program, const Kernel &kernel,
                                                                           const GemmTensorCoreSchedule &product,
                                                                           const LoweringOptions &options);
// A GPU's depthwise convolution.
std::optional<ConvolutionStripsSchedule> strips_schedule(const Program &program, const Kernel &kernel,
                                                         const LoweringOptions &options);
// The schedule's tiles: `tuned` where it is the way of one of them (null: nothing was measured), else by a model of the
// time on options.machine. All that were weighed, the quickest by the model first.
using Ways = std::vector<ScheduleChoice::Way>;
Ways choose_tiles(const Program &program, const Kernel &kernel, const LoweringOptions &options,
                  const std::string *tuned, GemmTensorCoreSchedule &schedule);
Ways choose_tiles(const LoweringOptions &options, const std::string *tuned, GemmWarpgroupSchedule &schedule);
Ways choose_tiles(const LoweringOptions &options, const std::string *tuned, ConvolutionWarpgroupSchedule &schedule);

inline bool is_f32(const Program &program, BufferId b) { return program.buffer(b).element() == ElementType::kFloat32; }

}  // namespace optc
