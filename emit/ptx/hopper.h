#pragma once
// Instructions of sm_90a that LLVM 19 has no intrinsics for, one function an instruction (PTX ISA 8.0): barriers in
// shared memory that count arrivals and bytes, copies by tensor maps (TMA), and products of warpgroups on operands in
// shared memory (wgmma). Addresses of shared memory are byte offsets (Builder::shared) as i32.

#include "emit/ptx/builder.h"

namespace optc::ptx {

// --- mbarrier objects: 8 bytes, 8-byte aligned

void barrier_init(Builder &b, Value at, int arrivals);
void barrier_init_fence(Builder &b);  // what barrier_init did is seen by TMA; then the block meets at a barrier
// This thread arrives, and says how many bytes TMA will bring in this phase.
void barrier_expect(Builder &b, Value at, int bytes);
void barrier_arrive_if(Builder &b, Value at, Value condition);  // i1
// Until the phase of that parity (0 or 1, i32) is complete: the phase before the first counts as complete, parity 1.
void barrier_wait(Builder &b, Value at, Value parity);

// --- TMA

// The box at `coordinates` (elements, the contiguous one first) of the tensor map at `map` (Builder::map_address) into
// shared memory; zeros for what lies outside of the tensor. Its bytes count at the barrier.
void tma_load(Builder &b, Value to, Value map, const Values &coordinates, Value barrier);
// The same of an image's map (im2col): 64 channels from coordinates[0] on of as many pixels as the map says, the first
// one's window at coordinates[1..3] (the inner dim of space first, then the image), `offsets` (i32, 0 to 255) the tap.
void tma_load_image(Builder &b, Value to, Value map, const Values &coordinates, const Values &offsets, Value barrier);

// --- wgmma. A warpgroup is four warps, the first a multiple of four.

// A matrix of 16-bit elements in shared memory as TMA's 128-byte swizzle lays it out: rows of 64 contiguous elements,
// groups of 8 rows 1024 bytes apart; `leading_bytes` from 64 contiguous elements to the next 64, where they run along m
// or n.
Value wgmma_descriptor(Builder &b, Value at, int leading_bytes);
Value wgmma_descriptor_at(Builder &b, Value descriptor, int bytes);  // so many bytes further
// sums (m64 x n, n / 2 a thread) = A * B + (accumulate ? sums : 0), for 16 of k. a_across, b_across: m, n run along
// memory, not k. accumulate: i1, or null: yes. The result is there after wgmma_wait only.
Values wgmma(Builder &b, MmaType type, int n, const Values &sums, Value a, bool a_across, Value in_b, bool b_across,
             Value accumulate);
void wgmma_fence(Builder &b);   // before the first of a group: registers are as this thread left them
void wgmma_commit(Builder &b);  // closes a group
Values wgmma_wait(Builder &b, int pending, const Values &sums);  // until all groups but the last `pending` are done

// Registers of this warpgroup's threads from here on, a multiple of 8.
void set_registers(Builder &b, int count, bool more);

}  // namespace optc::ptx
