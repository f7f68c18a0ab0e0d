/**
 * What a page shows, as data: `h` describes an element, `patch` brings the document to that description.
 *
 * Texts become text nodes and attributes, never markup, so text of jobs cannot become a part of the page. Elements
 * that stay keep their focus, their selection and the place to which they are scrolled.
 */

const SVG = "http://www.w3.org/2000/svg";
const HREF = /^(https?:|[^:]*$)/i;

/**
 * @typedef {{tag: string, space: string | null, key: string | null, props: Props, children: Child[]}} Element_
 * @typedef {Element_ | string} Child
 * @typedef {Record<string, any>} Props
 * @typedef {Child | number | null | undefined | false | Content[]} Content
 */

/** @type {WeakMap<Node, {key: string | null, props: Props}>} */
const known = new WeakMap();

/**
 * An element. A prop that is a function is a handler (`onclick`); `key` names it among its siblings; `draw` is called
 * with the node after each patch, and draws what the element holds, which `patch` then leaves alone.
 * @param {string} tag
 * @param {Props | null} [props]
 * @param {...Content} children
 * @returns {Element_}
 */
export function h(tag, props, ...children) {
  return element(tag, null, props, children);
}

/**
 * An element of a picture.
 * @param {string} tag
 * @param {Props | null} [props]
 * @param {...Content} children
 * @returns {Element_}
 */
export function svg(tag, props, ...children) {
  return element(tag, SVG, props, children);
}

/**
 * @param {string} tag
 * @param {string | null} space
 * @param {Props | null | undefined} given
 * @param {Content[]} children
 * @returns {Element_}
 */
function element(tag, space, given, children) {
  const { key = null, ...props } = given ?? {};
  return { tag, space, key: key === null ? null : String(key), props, children: flat(children) };
}

/**
 * @param {Content[]} contents
 * @returns {Child[]}
 */
function flat(contents) {
  /** @type {Child[]} */
  const found = [];
  for (const one of contents) {
    if (Array.isArray(one)) found.push(...flat(one));
    else if (typeof one === "number") found.push(String(one));
    else if (one !== null && one !== undefined && one !== false && one !== "") found.push(one);
  }
  return found;
}

/** What draws itself, once all is in its place. @type {[Element, (node: any) => void][]} */
let undrawn = [];

/**
 * Bring the children of `parent` to what `contents` describes.
 * @param {Element} parent
 * @param {Content} contents
 */
export function patch(parent, contents) {
  patchChildren(parent, contents);
  const due = undrawn;
  undrawn = [];
  for (const [node, draw] of due) draw(node);
}

/**
 * @param {Element} parent
 * @param {Content} contents
 */
function patchChildren(parent, contents) {
  const wanted = flat([contents]);
  const reused = matched(parent, wanted);
  const kept = new Set(reused);
  for (const node of [...parent.childNodes]) if (!kept.has(node)) node.remove();
  let place = parent.firstChild;
  wanted.forEach((child, index) => {
    const found = reused[index];
    const node = found ?? made(child);
    if (found) update(found, child);
    if (node === place) place = place.nextSibling;
    else parent.insertBefore(node, place);
  });
}

/**
 * For each wanted child the node that can become it: by key, else the next one of its kind.
 * @param {Element} parent
 * @param {Child[]} wanted
 * @returns {(ChildNode | null)[]}
 */
function matched(parent, wanted) {
  /** @type {Map<string, ChildNode>} */
  const keyed = new Map();
  /** @type {ChildNode[]} */
  const free = [];
  for (const node of parent.childNodes) {
    const key = known.get(node)?.key ?? null;
    if (key === null) free.push(node);
    else keyed.set(key, node);
  }
  return wanted.map((child) => {
    if (typeof child !== "string" && child.key !== null) {
      const found = keyed.get(child.key);
      keyed.delete(child.key);
      return found && isOfKind(found, child) ? found : null;
    }
    const at = free.findIndex((node) => isOfKind(node, child));
    return at < 0 ? null : (free.splice(0, at + 1)[at] ?? null);
  });
}

/**
 * @param {ChildNode} node
 * @param {Child} child
 */
function isOfKind(node, child) {
  if (typeof child === "string") return node.nodeType === Node.TEXT_NODE;
  return node instanceof Element && node.localName === child.tag && known.has(node);
}

/**
 * @param {Child} child
 * @returns {ChildNode}
 */
function made(child) {
  if (typeof child === "string") return document.createTextNode(child);
  const node = child.space === null ? document.createElement(child.tag) : document.createElementNS(child.space, child.tag);
  known.set(node, { key: child.key, props: {} });
  setProps(node, {}, child.props);
  finish(node, child);
  return node;
}

/**
 * @param {ChildNode} node
 * @param {Child} child
 */
function update(node, child) {
  if (typeof child === "string") {
    if (node.nodeValue !== child) node.nodeValue = child;
    return;
  }
  const found = /** @type {Element} */ (node);
  setProps(found, known.get(node)?.props ?? {}, child.props);
  finish(found, child);
}

/**
 * What comes after the props: children, and what only holds with them.
 * @param {Element} node
 * @param {Element_} child
 */
function finish(node, child) {
  known.set(node, { key: child.key, props: child.props });
  if (child.props.draw) undrawn.push([node, child.props.draw]);
  else patchChildren(node, child.children);
  if (node instanceof HTMLSelectElement && "value" in child.props) node.value = child.props.value;
}

/**
 * @param {Element} node
 * @param {Props} before
 * @param {Props} after
 */
function setProps(node, before, after) {
  for (const name of Object.keys(before)) if (!(name in after)) setProp(node, name, null);
  for (const [name, value] of Object.entries(after)) {
    if (name === "draw" || (name === "value" && node instanceof HTMLSelectElement)) continue;
    if (name === "value" || name === "checked" || before[name] !== value) setProp(node, name, value);
  }
}

/**
 * @param {Element} node
 * @param {string} name
 * @param {any} value
 */
function setProp(node, name, value) {
  const fields = /** @type {any} */ (node);
  if (name.startsWith("on")) {
    fields[name] = value ?? null;
  } else if (name === "value" && node === document.activeElement && node instanceof HTMLInputElement) {
    return; // what a person types wins until they leave the field
  } else if ((name === "value" && node instanceof HTMLInputElement) || name === "checked" || name === "open") {
    const wanted = value ?? (name === "value" ? "" : false);
    if (fields[name] !== wanted) fields[name] = wanted;
  } else if (value === null || value === undefined || value === false) {
    node.removeAttribute(name);
  } else if (name === "href" && !HREF.test(String(value))) {
    node.removeAttribute(name);
  } else if (name === "style") {
    setStyle(/** @type {HTMLElement} */ (node), value);
  } else {
    node.setAttribute(name, value === true ? "" : String(value));
  }
}

/**
 * Custom properties and single properties only: the policy of the page refuses style attributes.
 * @param {HTMLElement | SVGElement} node
 * @param {Record<string, string | number>} styles
 */
function setStyle(node, styles) {
  for (const [name, value] of Object.entries(styles)) node.style.setProperty(name, String(value));
}
