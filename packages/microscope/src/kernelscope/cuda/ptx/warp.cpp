// What the lanes of a warp do together in inline PTX: shuffles, votes, and matrices between shared memory and
// registers.
#include "program.h"

namespace emulator::ptx {

void run_shfl(const Instruction& i, Frame& f)
{
    const Operand& to = i.operands[0].kind == Operand::list ? i.operands[0].parts[0] : i.operands[0];
    const unsigned c = get(i.operands[3], f), width = 32 - (c >> 8 & 31),
                   mask = i.operands.size() > 4 ? get(i.operands[4], f) : ~0u;
    const Shuffle kind = i.has("up")     ? Shuffle::up
                         : i.has("down") ? Shuffle::down
                         : i.has("bfly") ? Shuffle::exclusive_or
                                         : Shuffle::index;
    set(to, f,
        cut(shuffle(kind, mask, get(i.operands[1], f), get(i.operands[2], f), width, f.source->file, f.source->line),
            32));
    if (i.operands[0].kind == Operand::list) set(i.operands[0].parts[1], f, 1);
}
void run_vote(const Instruction& i, Frame& f)
{
    const Vote kind = i.has("all") ? Vote::all : i.has("any") ? Vote::any : i.has("uni") ? Vote::uniform : Vote::ballot;
    set(i.operands[0], f, vote(kind, get(i.operands[2], f), get(i.operands[1], f), f.source->file, f.source->line));
}
void run_activemask(const Instruction& i, Frame& f)
{
    set(i.operands[0], f, active_mask(f.source->file, f.source->line));
}
void run_redux(const Instruction& i, Frame& f)
{
    const Reduction kind = i.has("add")   ? Reduction::add
                           : i.has("min") ? Reduction::minimum
                           : i.has("max") ? Reduction::maximum
                           : i.has("and") ? Reduction::conjunction
                           : i.has("or")  ? Reduction::disjunction
                                          : Reduction::exclusive_or;
    set(i.operands[0], f,
        reduce(kind, i.type.kind == 's', get(i.operands[2], f), get(i.operands[1], f), f.source->file, f.source->line));
}
void run_elect(const Instruction& i, Frame& f)
{
    unsigned lane = 0;
    const bool chosen = elect(get(i.operands[1], f), &lane, f.source->file, f.source->line);
    const Operand& o = i.operands[0];
    set(o.kind == Operand::list ? o.parts[0] : o, f, o.kind == Operand::list ? lane : chosen);
    if (o.kind == Operand::list) set(o.parts[1], f, chosen);
}

static void act_ldmatrix(void* const* records, unsigned lanes)
{
    if (!is_whole(records, lanes)) return;
    const Instruction& i = *lane_of(records, 0).instruction;
    const bool loads = i.words[0] == "ldmatrix", turned = i.has("trans");
    const Operand &registers = i.operands[loads ? 0 : 1], &place = i.operands[loads ? 1 : 0];
    for (unsigned m = 0; m < i.width; ++m) {
        char* row[8];
        for (unsigned r = 0; r < 8; ++r) {
            Frame& f = *lane_of(records, 8 * m + r).frame;
            row[r] = pointer(i, address(place, f));
            if (reinterpret_cast<std::uintptr_t>(row[r]) % 16) return;  // has been reported
        }
        for (unsigned lane = 0; lane < 32; ++lane) {
            Frame& f = *lane_of(records, lane).frame;
            const unsigned g = lane / 4, t = lane % 4;
            std::uint16_t* const first = reinterpret_cast<std::uint16_t*>(turned ? row[2 * t] + 2 * g : row[g] + 4 * t);
            std::uint16_t* const second =
                reinterpret_cast<std::uint16_t*>(turned ? row[2 * t + 1] + 2 * g : row[g] + 4 * t + 2);
            if (loads) {
                std::uint16_t low, high;
                std::memcpy(&low, first, 2);
                std::memcpy(&high, second, 2);
                set(part(registers, m), f, std::uint32_t(high) << 16 | low);
            } else {
                const std::uint32_t value = get(part(registers, m), f);
                const std::uint16_t low = value, high = value >> 16;
                std::memcpy(first, &low, 2);
                std::memcpy(second, &high, 2);
            }
        }
    }
}
void run_ldmatrix(const Instruction& i, Frame& f)
{
    const bool loads = i.words[0] == "ldmatrix";
    watch::goes_by(by_matrix);
    if (thread_number() % 32 < 8 * i.width)
        watch::accesses(pointer(i, address(i.operands[loads ? 1 : 0], f)), 16, !loads, f.pc);
    watch::goes_by(plain);
    all_lanes(i, f, act_ldmatrix);
}

static void act_movmatrix(void* const* records, unsigned lanes)
{
    if (!is_whole(records, lanes)) return;
    const Instruction& i = *lane_of(records, 0).instruction;
    std::uint16_t m[8][8];
    for (unsigned lane = 0; lane < 32; ++lane) {
        const std::uint32_t v = get(i.operands[1], *lane_of(records, lane).frame);
        m[lane / 4][lane % 4 * 2] = v;
        m[lane / 4][lane % 4 * 2 + 1] = v >> 16;
    }
    for (unsigned lane = 0; lane < 32; ++lane)
        set(i.operands[0], *lane_of(records, lane).frame,
            std::uint32_t(m[lane % 4 * 2 + 1][lane / 4]) << 16 | m[lane % 4 * 2][lane / 4]);
}
void run_movmatrix(const Instruction& i, Frame& f) { all_lanes(i, f, act_movmatrix); }

}  // namespace emulator::ptx
