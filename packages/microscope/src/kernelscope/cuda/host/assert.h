// NVRTC knows assert without a header; a program that includes one finds this.
#pragma once
