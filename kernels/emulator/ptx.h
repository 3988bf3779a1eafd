// Inline PTX.
#pragma once
