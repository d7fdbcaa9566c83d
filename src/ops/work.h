// What a node costs at least, to hold its time against what the machine can do.
#pragma once
#include "graph/graph.h"

namespace tandem {

struct Work {
  double operations =
      0;             // of products, a multiply-add counted twice; what is done per element is not counted
  double bytes = 0;  // of sources and result, each element that must be touched counted once
  Precision precision = Precision::F32;  // of the products; of several nodes the coarsest

  Work& operator+=(const Work& other);
};

// The work of a node, from shapes alone; where the ids of a product with experts (or the rows of a gather)
// lie in a leaf, only the experts they name are counted, else as many as the slots could name.  Attention is
// taken as causal over one sample.  A VIEW, a leaf, a dropped node and one without elements cost nothing.
Work work_of(const Node& node);

}  // namespace tandem
