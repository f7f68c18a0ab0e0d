/**
 * Places for the vertices of a graph without circles: layers by the longest path from a source, and within a layer the
 * order of the medians of their neighbours, which keeps crossings few (Sugiyama, Tagawa and Toda 1981).
 */

const SWEEPS = 6;

/** @typedef {{id: string, inputs: string[]}} Vertex */
/** @typedef {{layer: number, place: number}} Spot `layer` counts from the sources, `place` within the layer */

/**
 * @param {Vertex[]} vertices
 * @returns {Map<string, Spot>}
 */
export function layout(vertices) {
  const layers = layered(vertices);
  const outputs = reversed(vertices);
  const inputs = new Map(vertices.map((one) => [one.id, one.inputs]));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const isDown = sweep % 2 === 0;
    const order = isDown ? layers.slice(1) : layers.slice(0, -1).reverse();
    const spots = places(layers);
    for (const layer of order) {
      const neighbours = isDown ? inputs : outputs;
      const medians = new Map(layer.map((id) => [id, median((neighbours.get(id) ?? []).map((one) => spots.get(one)?.place ?? 0))]));
      layer.sort((a, b) => (medians.get(a) ?? 0) - (medians.get(b) ?? 0));
      layer.forEach((id, place) => spots.set(id, { layer: spots.get(id)?.layer ?? 0, place }));
    }
  }
  return places(layers);
}

/** @param {Vertex[]} vertices */
function layered(vertices) {
  const byId = new Map(vertices.map((one) => [one.id, one]));
  /** @type {Map<string, number>} */
  const depth = new Map();
  /** @param {string} id @param {Set<string>} above @returns {number} */
  const depthOf = (id, above) => {
    const before = depth.get(id);
    if (before !== undefined) return before;
    if (above.has(id)) return 0;
    above.add(id);
    const found = Math.max(-1, ...(byId.get(id)?.inputs ?? []).filter((one) => byId.has(one)).map((one) => depthOf(one, above))) + 1;
    above.delete(id);
    depth.set(id, found);
    return found;
  };
  /** @type {string[][]} */
  const layers = [];
  for (const one of vertices) {
    const at = depthOf(one.id, new Set());
    while (layers.length <= at) layers.push([]);
    layers[at]?.push(one.id);
  }
  return layers;
}

/** @param {Vertex[]} vertices */
function reversed(vertices) {
  /** @type {Map<string, string[]>} */
  const outputs = new Map(vertices.map((one) => [one.id, []]));
  for (const one of vertices) for (const input of one.inputs) outputs.get(input)?.push(one.id);
  return outputs;
}

/** @param {string[][]} layers @returns {Map<string, Spot>} */
function places(layers) {
  return new Map(layers.flatMap((layer, at) => layer.map((id, place) => /** @type {[string, Spot]} */ ([id, { layer: at, place }]))));
}

/** @param {number[]} values */
function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  return sorted.length ? (sorted.length % 2 ? (sorted[middle] ?? 0) : ((sorted[middle - 1] ?? 0) + (sorted[middle] ?? 0)) / 2) : 0;
}
