// libespalier_gloo.so: what C10dGroups loads.

#include "worker/session/group_module.h"

extern "C" __attribute__((visibility("default"))) espalier::GroupFactory* espalier_make_groups(
    const espalier::GroupPlace& place) {
  // Owned by the caller, across a C boundary.
  return new espalier::GroupModule(place, espalier::JoinGloo);
}
