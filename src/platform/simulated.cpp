#include "platform/simulated.h"

#if defined(DUNLIN_SIM)
namespace dunlin::inline v0_1::platform {

thread_local constinit access_checker* checker_of_thread = nullptr;

}  // namespace dunlin::platform
#endif
